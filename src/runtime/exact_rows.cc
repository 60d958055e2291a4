#include "runtime/exact_rows.h"

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "base/random.h"
#include "base/status.h"
#include "runtime/engine_impl.h"

namespace kakeya {
namespace {

// One text may have equal bits by chance.
constexpr std::int64_t kTexts = 3;
constexpr std::int64_t kPromptTokens = 24;
// One is longer, where sessions are: from 1,024 positions on MLX has other kernels for attention on
// some GPUs.
constexpr std::int64_t kLongPromptTokens = 1100;
constexpr std::int64_t kChunk = 256;

class RowProbe {
 public:
  RowProbe(EngineImpl& engine, std::int64_t most, std::int64_t prompt)
      : engine_(engine), most_(most), prompt_(prompt) {}

  // The greatest number of rows, up to `most`, such that all passes of so many or fewer rows are
  // exact for one text.
  Result<std::int64_t> count(std::int64_t text, std::int64_t most) {
    KAKEYA_ASSIGN_OR_RETURN(timeline_, engine_.create_timeline(session(), most_));
    const std::vector<TokenId> ids = random_ids(text);
    const std::span<const TokenId> prompt = std::span(ids).first(static_cast<std::size_t>(prompt_));
    const std::span<const TokenId> tokens = std::span(ids).subspan(prompt.size());
    for (std::size_t done = 0; done < prompt.size(); done += kChunk) {
      const std::size_t count = std::min<std::size_t>(kChunk, prompt.size() - done);
      KAKEYA_TRY(timeline_->forward(prompt.subspan(done, count), {}));
    }
    std::vector<float> alone;
    for (std::size_t i = 0; i < static_cast<std::size_t>(most); ++i) {
      KAKEYA_ASSIGN_OR_RETURN(const std::vector<float> logits, run(tokens.subspan(i, 1)));
      alone.insert(alone.end(), logits.begin(), logits.end());
    }
    for (std::int64_t rows = 2; rows <= most; ++rows) {
      KAKEYA_TRY(timeline_->truncate(prompt_));
      KAKEYA_ASSIGN_OR_RETURN(const std::vector<float> together,
                              run(tokens.first(static_cast<std::size_t>(rows))));
      if (!std::equal(together.begin(), together.end(), alone.begin())) return rows - 1;
    }
    return most;
  }

 private:
  // The options of a session that drops and restores nothing, as the engine's own sessions may.
  SessionOptions session() const {
    SessionOptions options;
    options.context = prompt_ + most_;
    options.max_rows = std::max(std::min(prompt_, kChunk), most_);
    return options;
  }
  std::vector<TokenId> random_ids(std::int64_t text) const {
    std::vector<TokenId> ids(static_cast<std::size_t>(prompt_ + most_));
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto words = philox(static_cast<std::uint64_t>(text), {static_cast<std::uint32_t>(i)});
      ids[i] = static_cast<TokenId>(words[0] % static_cast<std::uint64_t>(engine_.vocab_size()));
    }
    return ids;
  }
  // The logits of all of them.
  Result<std::vector<float>> run(std::span<const TokenId> ids) {
    std::vector<float> logits(ids.size() * static_cast<std::size_t>(engine_.vocab_size()));
    KAKEYA_TRY(timeline_->forward(
        ids, {.logits = {logits.data(), std::ssize(ids), engine_.vocab_size()}}));
    return logits;
  }

  EngineImpl& engine_;
  const std::int64_t most_;
  const std::int64_t prompt_;
  std::unique_ptr<Timeline> timeline_;
};

}  // namespace

Result<std::int64_t> count_exact_rows(EngineImpl& engine, std::int64_t most) {
  const std::int64_t asked = engine.session_options().context;
  const std::int64_t context = asked > 0 ? asked : engine.max_context();
  std::int64_t exact = most;
  if (context >= kLongPromptTokens + most) {
    const auto found = RowProbe(engine, most, kLongPromptTokens).count(kTexts, most);
    if (found) {
      exact = *found;
    } else if (found.error().code() != StatusCode::kResourceExhausted) {
      return found;  // else sessions that keep fewer rows may fit
    }
  }
  RowProbe probe(engine, most, kPromptTokens);
  for (std::int64_t text = 0; text < kTexts && exact > 1; ++text) {
    KAKEYA_ASSIGN_OR_RETURN(exact, probe.count(text, exact));
  }
  return exact;
}

}  // namespace kakeya
