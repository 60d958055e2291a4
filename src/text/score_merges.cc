#include "text/score_merges.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace kakeya {
namespace {

// Gemma 3 has half a million.
constexpr std::size_t kMostMerges = std::size_t{1} << 22;

// Sorts by score, the best first; equal scores by id.
void sort_by_score(std::span<TokenId> ids, std::span<const double> scores) {
  const auto score = [&](TokenId id) { return scores[static_cast<std::size_t>(id)]; };
  std::ranges::sort(ids, [&](TokenId a, TokenId b) {
    return score(a) > score(b) || (score(a) == score(b) && a < b);
  });
}

}  // namespace

Result<std::vector<Merge>> merges_of_scores(const Vocabulary& vocabulary,
                                            const std::vector<bool>& candidates,
                                            std::span<const double> scores) {
  // Finds one of tokens with equal texts.
  const auto find = [&](std::string_view text) -> std::optional<TokenId> {
    const auto id = vocabulary.find(text);
    return id && candidates[static_cast<std::size_t>(*id)] ? id : std::nullopt;
  };
  std::vector<TokenId> ids;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const auto text = candidates[i] ? vocabulary.text(id) : std::nullopt;
    if (text && find(*text) == id) ids.push_back(id);
  }
  sort_by_score(ids, scores);
  std::vector<Merge> merges;
  std::uint32_t rank = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const TokenId id = ids[i];
    const auto score = scores[static_cast<std::size_t>(id)];
    if (i > 0 && score != scores[static_cast<std::size_t>(ids[i - 1])]) ++rank;
    const std::string_view text = *vocabulary.text(id);
    if (text.size() > kMostScoredBytes) {
      return data_loss("[tokenizer] token {}: expected at most {} bytes beside a score, got {}", id,
                       kMostScoredBytes, text.size());
    }
    const std::size_t first = merges.size();
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      const auto left = find(text.substr(0, cut));
      const auto right = left ? find(text.substr(cut)) : std::nullopt;
      if (right) merges.push_back({*left, *right, id, rank});
    }
    std::ranges::sort(std::span(merges).subspan(first), {},
                      [](const Merge& merge) { return std::pair(merge.left, merge.right); });
    if (merges.size() > kMostMerges) {
      return data_loss("[tokenizer] scores: expected at most {} merges, got more", kMostMerges);
    }
  }
  return merges;
}

}  // namespace kakeya
