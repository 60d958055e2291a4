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

class RowProbe {
 public:
  RowProbe(EngineImpl& engine, std::int64_t most) : engine_(engine), most_(most) {}

  // Of one text: the most rows, up to `most`, all passes of up to which are exact.
  Result<std::int64_t> count(std::int64_t text, std::int64_t most) {
    KAKEYA_ASSIGN_OR_RETURN(timeline_, engine_.create_timeline(session(), most_));
    const std::vector<TokenId> ids = random_ids(text);
    const std::span<const TokenId> prompt = std::span(ids).first(kPromptTokens);
    const std::span<const TokenId> tokens = std::span(ids).subspan(kPromptTokens);
    KAKEYA_TRY(timeline_->forward(prompt, {}));
    std::vector<float> alone;
    for (std::size_t i = 0; i < static_cast<std::size_t>(most); ++i) {
      KAKEYA_ASSIGN_OR_RETURN(const std::vector<float> logits, run(tokens.subspan(i, 1)));
      alone.insert(alone.end(), logits.begin(), logits.end());
    }
    for (std::int64_t rows = 2; rows <= most; ++rows) {
      KAKEYA_TRY(timeline_->truncate(kPromptTokens));
      KAKEYA_ASSIGN_OR_RETURN(const std::vector<float> together,
                              run(tokens.first(static_cast<std::size_t>(rows))));
      if (!std::equal(together.begin(), together.end(), alone.begin())) return rows - 1;
    }
    return most;
  }

 private:
  // Without what the engine's own sessions drop or restore.
  SessionOptions session() const {
    SessionOptions options;
    options.context = kPromptTokens + most_;
    options.max_rows = std::max(kPromptTokens, most_);
    return options;
  }
  std::vector<TokenId> random_ids(std::int64_t text) const {
    std::vector<TokenId> ids(static_cast<std::size_t>(kPromptTokens + most_));
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
  std::unique_ptr<Timeline> timeline_;
};

}  // namespace

Result<std::int64_t> count_exact_rows(EngineImpl& engine, std::int64_t most) {
  RowProbe probe(engine, most);
  std::int64_t exact = most;
  for (std::int64_t text = 0; text < kTexts && exact > 1; ++text) {
    KAKEYA_ASSIGN_OR_RETURN(exact, probe.count(text, exact));
  }
  return exact;
}

}  // namespace kakeya
