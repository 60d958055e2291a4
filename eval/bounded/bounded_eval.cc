#include "eval/bounded/bounded_eval.h"

#include <fmt/format.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "kakeya/memory.h"
#include "kakeya/session.h"

namespace kakeya::eval {
namespace {

std::int64_t cache_bytes(const Footprint& footprint) {
  using enum MemoryClass;
  std::uint64_t bytes = 0;
  for (const MemoryClass each : {kKvFull, kKvSliding, kCodes, kDrafter}) {
    bytes += footprint.reserved_bytes(each);
  }
  return static_cast<std::int64_t>(bytes);
}

// Both sessions and what they replied so far.
class BothWays {
 public:
  static Result<BothWays> create(Engine& engine,
                                 std::span<const NeedlePrompt> prompts,
                                 std::int64_t length,
                                 const BoundedOptions& options,
                                 const BoundedRun& run);
  Status add_prompt(std::size_t index);
  Result<BoundedLength> finish(const Tokenizer& tokenizer) &&;

 private:
  enum Way : std::size_t { kPlain, kBounded };

  BothWays(std::span<const NeedlePrompt> prompts,
           const BoundedOptions& options,
           const BoundedRun& run)
      : prompts_(prompts), options_(options), run_(run) {
    for (auto& replies : replies_) replies.resize(prompts.size());
    for (auto* seconds : {&length_.plain_seconds, &length_.bounded_seconds}) {
      seconds->resize(static_cast<std::size_t>(options.pairs));
    }
  }
  // Decodes the reply behind a prompt that was run.
  Status reply(Way way, std::size_t index, std::int64_t pair);

  std::span<const NeedlePrompt> prompts_;
  const BoundedOptions& options_;
  const BoundedRun& run_;
  std::array<std::unique_ptr<Session>, 2> sessions_;
  std::array<std::vector<std::vector<TokenId>>, 2> replies_;
  BoundedLength length_;
  std::int64_t done_ = 0;
};

Result<BothWays> BothWays::create(Engine& engine,
                                  std::span<const NeedlePrompt> prompts,
                                  std::int64_t length,
                                  const BoundedOptions& options,
                                  const BoundedRun& run) {
  BothWays both(prompts, options, run);
  both.length_.length = length;
  for (const Way way : {kPlain, kBounded}) {
    SessionOptions session = way == kPlain ? run.plain : run.bounded;
    session.context = length + options.max_tokens;
    KAKEYA_ASSIGN_OR_RETURN(both.sessions_[way], engine.create_session(session));
  }
  return both;
}

Status BothWays::reply(Way way, std::size_t index, std::int64_t pair) {
  KAKEYA_ASSIGN_OR_RETURN(const auto session, sessions_[way]->fork());
  GenerateOptions generate{.max_tokens = options_.max_tokens};
  if (way == kPlain) generate.draft_length = 0;
  KAKEYA_ASSIGN_OR_RETURN(GenerateResult result, session->generate(generate));
  (way == kPlain ? length_.plain_seconds
                 : length_.bounded_seconds)[static_cast<std::size_t>(pair)] +=
      result.decode_seconds;
  if (way == kBounded) {
    length_.drafted += result.drafted;
    length_.accepted += result.accepted;
  }
  std::vector<TokenId>& known = replies_[way][index];
  if (known.empty()) known = result.ids;
  if (known == result.ids) return {};
  return error(StatusCode::kInternal, "expected the reply of the first pair, got another one");
}

Status BothWays::add_prompt(std::size_t index) {
  for (const auto& session : sessions_) {
    KAKEYA_TRY(session->truncate(0));
    KAKEYA_TRY(session->append(prompts_[index].ids));
    KAKEYA_TRY(session->prefill());
    const std::int64_t all = 2 * std::ssize(prompts_) * length_.length;
    done_ += length_.length;
    if (run_.on_progress) run_.on_progress(done_, all);
  }
  for (std::int64_t pair = 0; pair < options_.pairs; ++pair) {
    const bool plain_first = (static_cast<std::int64_t>(index) + pair) % 2 == 0;
    for (const Way way : {plain_first ? kPlain : kBounded, plain_first ? kBounded : kPlain}) {
      KAKEYA_TRY(reply(way, index, pair));
    }
  }
  return {};
}

Result<BoundedLength> BothWays::finish(const Tokenizer& tokenizer) && {
  length_.plain_bytes = cache_bytes(sessions_[kPlain]->footprint());
  length_.bounded_bytes = cache_bytes(sessions_[kBounded]->footprint());
  const auto finds = [&](Way way, std::size_t index) {
    const NeedlePrompt& prompt = prompts_[index];
    return answers_in(prompt, tokenizer.decode(replies_[way][index])) == std::ssize(prompt.answers);
  };
  for (std::size_t i = 0; i < prompts_.size(); ++i) {
    length_.prompts.push_back({.depth = prompts_[i].place.depth,
                               .index = prompts_[i].place.index,
                               .sha256 = run_.hash(prompts_[i].ids),
                               .plain_found = finds(kPlain, i),
                               .bounded_found = finds(kBounded, i),
                               .plain_sha256 = run_.hash(replies_[kPlain][i]),
                               .bounded_sha256 = run_.hash(replies_[kBounded][i]),
                               .plain_tokens = std::ssize(replies_[kPlain][i]),
                               .bounded_tokens = std::ssize(replies_[kBounded][i])});
  }
  return std::move(length_);
}

}  // namespace

Result<BoundedLength> evaluate_bounded(Engine& engine,
                                       std::span<const NeedlePrompt> prompts,
                                       std::int64_t length,
                                       const BoundedOptions& options,
                                       const BoundedRun& run) {
  KAKEYA_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, engine.tokenizer());
  KAKEYA_ASSIGN_OR_RETURN(BothWays both, BothWays::create(engine, prompts, length, options, run));
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const Status added = both.add_prompt(i);
    if (added) continue;
    return Unexpected(added.error().with_context(
        fmt::format("length {}, depth {}", length, prompts[i].place.depth)));
  }
  return std::move(both).finish(*tokenizer);
}

}  // namespace kakeya::eval
