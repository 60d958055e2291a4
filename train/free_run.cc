#include "free_run.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>

#include "base/status.h"
#include "model/dflash/dflash.h"

namespace kakeya::train {

Result<FreeRun> run_freely(const EngineOptions& options,
                           const std::string& drafter_dir,
                           std::span<const Reply> replies) {
  EngineOptions with_drafter = options;
  std::error_code ignored;
  // A path, whatever it is called: "none" is a word of this option.
  with_drafter.draft.source = std::filesystem::absolute(drafter_dir, ignored).string();
  KAKEYA_ASSIGN_OR_RETURN(const auto engine, EngineImpl::open(with_drafter));
  const std::int64_t length = engine->drafter()->max_length();
  FreeRun run;
  for (const Reply& reply : replies) {
    const std::int64_t wanted = std::ssize(reply.ids) - reply.prompt;
    if (wanted < 1) continue;
    const std::int64_t context =
        std::min(std::ssize(reply.ids) + length + 1, engine->max_context());
    KAKEYA_ASSIGN_OR_RETURN(const auto session, engine->create_session({.context = context}));
    KAKEYA_TRY(session->append(std::span(reply.ids).first(static_cast<std::size_t>(reply.prompt))));
    KAKEYA_ASSIGN_OR_RETURN(const GenerateResult result,
                            session->generate({.max_tokens = wanted, .draft_length = length}));
    run.prompts += 1;
    run.different +=
        std::ranges::equal(result.ids,
                           std::span(reply.ids).subspan(static_cast<std::size_t>(reply.prompt)))
            ? 0
            : 1;
    run.rounds += std::ssize(result.rounds);
    for (const RoundRecord& round : result.rounds) run.tokens += round.committed;
  }
  return run;
}

}  // namespace kakeya::train
