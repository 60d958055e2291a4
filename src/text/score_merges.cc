#include "text/score_merges.h"

#include <algorithm>
#include <tuple>

#include "base/status.h"

namespace kakeya {
namespace {

// Gemma 3 has half a million.
constexpr std::size_t kMostMerges = std::size_t{1} << 22;

// The rank of each candidate's score, the best first; of the others 0.
std::vector<std::uint32_t> score_ranks(std::span<const TokenId> ids,
                                       std::span<const double> scores) {
  const auto score = [&](TokenId id) { return scores[static_cast<std::size_t>(id)]; };
  std::vector<TokenId> ordered(ids.begin(), ids.end());
  std::ranges::sort(ordered, std::ranges::greater(), score);
  std::vector<std::uint32_t> ranks(scores.size());
  std::uint32_t rank = 0;
  for (std::size_t i = 0; i < ordered.size(); ++i) {
    if (i > 0 && score(ordered[i]) != score(ordered[i - 1])) ++rank;
    ranks[static_cast<std::size_t>(ordered[i])] = rank;
  }
  return ranks;
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
  const std::vector<std::uint32_t> ranks = score_ranks(ids, scores);
  std::vector<Merge> merges;
  for (const TokenId id : ids) {
    const std::string_view text = *vocabulary.text(id);
    if (text.size() > kMostScoredBytes) {
      return data_loss("[tokenizer] token {}: expected at most {} bytes beside a score, got {}", id,
                       kMostScoredBytes, text.size());
    }
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      const auto left = find(text.substr(0, cut));
      const auto right = left ? find(text.substr(cut)) : std::nullopt;
      if (right) merges.push_back({*left, *right, id, ranks[static_cast<std::size_t>(id)]});
    }
    if (merges.size() > kMostMerges) {
      return data_loss("[tokenizer] scores: expected at most {} merges, got more", kMostMerges);
    }
  }
  std::ranges::sort(merges, {}, [](const Merge& merge) {
    return std::tuple(merge.rank, merge.joined, merge.left, merge.right);
  });
  return merges;
}

}  // namespace kakeya
