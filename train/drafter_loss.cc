#include "drafter_loss.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "base/status.h"

namespace kakeya::train {
namespace {

// Labels [N, B - 1], 0 where there is none, and 1 where there is one.
struct Labels {
  mx::array ids;
  mx::array valid;
};

Labels make_labels(const DrafterNetwork& network, const LabelledBlocks& blocks) {
  const mx::Shape shape{to_int(std::ssize(blocks.blocks.anchors)),
                        to_int(network.block_size() - 1)};
  std::vector<TokenId> ids;
  std::vector<float> valid;
  for (const TokenId id : blocks.labels) {
    ids.push_back(std::max<TokenId>(id, 0));
    valid.push_back(id < 0 ? 0.0F : 1.0F);
  }
  return {mx::array(ids.data(), shape, mx::int32),
          mx::astype(mx::array(valid.data(), shape, mx::float32), network.dtype())};
}

// Logits [N, B - 1, V] of the rows that draft: the first one's token is known.
mx::array draft_logits(const DrafterNetwork& network,
                       const std::vector<mx::array>& weights,
                       const LabelledBlocks& blocks) {
  const mx::array hidden = network.hidden(weights, blocks.blocks);
  const mx::Shape end = hidden.shape();
  return network.logits(mx::slice(hidden, {0, 1, 0}, end));
}

}  // namespace

Result<DepthWeights> parse_depth_weights(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  const std::string_view number = colon == text.npos ? "" : text.substr(colon + 1);
  DepthWeights weights;
  const auto [end, problem] =
      std::from_chars(number.data(), number.data() + number.size(), weights.parameter);
  const bool is_number = problem == std::errc() && end == number.data() + number.size() &&
                         std::isfinite(weights.parameter);
  if (kind == "decay" && is_number && weights.parameter > 0.0) return weights;
  weights.kind = DepthWeights::Kind::kDpace;
  if (kind == "dpace" && is_number && weights.parameter >= 0.0 && weights.parameter < 1.0) {
    return weights;
  }
  return invalid_argument(
      "weights: expected decay:G, G above 0, or dpace:A, A from 0 to below 1, got {}", text);
}

mx::array depth_weights(const DepthWeights& depth, const mx::array& log_p, const mx::array& valid) {
  if (depth.kind == DepthWeights::Kind::kDecay) {
    std::vector<double> decay;
    for (int k = 0; k < log_p.shape(1); ++k) decay.push_back(std::exp(-k / depth.parameter));
    return valid * mx::array(decay.data(), mx::Shape{1, log_p.shape(1)}, log_p.dtype());
  }
  const mx::array a(depth.parameter, log_p.dtype());
  const mx::array one(1.0, log_p.dtype());
  const mx::array factors = (one - a) * mx::exp(mx::stop_gradient(log_p)) + a;
  return valid * mx::cumsum(mx::cumprod(factors, 1) * valid, 1, true, true);
}

LossSum block_loss(const DrafterNetwork& network,
                   const std::vector<mx::array>& weights,
                   const LabelledBlocks& blocks,
                   const DepthWeights& depth) {
  const Labels labels = make_labels(network, blocks);
  const mx::array logits = draft_logits(network, weights, blocks);
  const mx::array chosen =
      mx::squeeze(mx::take_along_axis(logits, mx::expand_dims(labels.ids, -1), -1), -1);
  const mx::array log_p = chosen - mx::logsumexp(logits, -1);
  const mx::array weight = depth_weights(depth, log_p, labels.valid);
  return {mx::negative(mx::sum(weight * log_p)), mx::sum(weight)};
}

void Acceptance::add(const Acceptance& other) {
  accepted.resize(std::max(accepted.size(), other.accepted.size()));
  possible.resize(accepted.size());
  for (std::size_t k = 0; k < other.accepted.size(); ++k) {
    accepted[k] += other.accepted[k];
    possible[k] += other.possible[k];
  }
  blocks += other.blocks;
}

double Acceptance::tokens() const {
  if (blocks == 0) return 1.0;
  const auto sum = std::accumulate(accepted.begin(), accepted.end(), std::int64_t{0});
  return 1.0 + static_cast<double>(sum) / static_cast<double>(blocks);
}

Acceptance count_accepted(const DrafterNetwork& network,
                          const std::vector<mx::array>& weights,
                          const LabelledBlocks& blocks) {
  mx::array drafts =
      mx::contiguous(mx::astype(mx::argmax(draft_logits(network, weights, blocks), -1), mx::int32));
  drafts.eval();
  const auto* ids = drafts.data<std::int32_t>();
  const auto depth = static_cast<std::size_t>(network.block_size() - 1);
  Acceptance acceptance{.accepted = std::vector<std::int64_t>(depth),
                        .possible = std::vector<std::int64_t>(depth),
                        .blocks = std::ssize(blocks.blocks.anchors)};
  for (std::size_t n = 0; n < blocks.blocks.anchors.size(); ++n) {
    bool right = true;
    for (std::size_t k = 0; k < depth; ++k) {
      const TokenId label = blocks.labels[n * depth + k];
      right = right && label >= 0 && ids[n * depth + k] == label;
      acceptance.possible[k] += label >= 0 ? 1 : 0;
      acceptance.accepted[k] += right ? 1 : 0;
    }
  }
  return acceptance;
}

}  // namespace kakeya::train
