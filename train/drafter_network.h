// The drafter's forward pass in MLX's operations, so that MLX can take its gradient. The equations
// are those of src/model/dflash; docs/speculation.md has them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "drafter_weights.h"
#include "formats/drafter_config.h"
#include "host_arrays.h"
#include "kakeya/options.h"
#include "kakeya/types.h"

namespace kakeya::train {

// The target's parts that the drafter borrows and training leaves as they are.
struct BorrowedWeights {
  DrafterTensor embedding;  // [V, D]
  DrafterTensor head;       // [V, D]
  float embed_scale = 1.0F;
};

// Blocks of one document: the taps of its positions 0 ... C - 1, and blocks at anchors <= C, each
// of which sees the positions below its own anchor only.
struct DocumentBlocks {
  std::vector<float> taps;            // [C, num_taps * D]
  std::vector<std::int32_t> anchors;  // [N], ascending or not
  std::vector<TokenId> first_ids;     // [N], the tokens at the anchors; the rest of a block is mask
  // Where given, instead: [N, B] ids of all rows.
  std::vector<TokenId> block_ids = {};
};

class DrafterNetwork {
 public:
  // `config` as loaded, for a target that it fits. `dtype`: float32, or float64 for checks.
  DrafterNetwork(const DrafterConfig& config,
                 const BorrowedWeights& borrowed,
                 mx::Dtype dtype = mx::float32);

  // The arrays of `weights` in their order, which is that of all functions below.
  std::vector<mx::array> arrays(const DrafterWeights& weights) const;

  // Features [C, D] of taps [C, num_taps * D].
  mx::array features(const std::vector<mx::array>& weights, const mx::array& taps) const;
  // Rows of the blocks after the final norm, [N, B, D], times output_multiplier.
  mx::array hidden(const std::vector<mx::array>& weights, const DocumentBlocks& blocks) const;
  // Logits [..., V] of such rows, soft-capped where the config says so.
  mx::array logits(const mx::array& hidden) const;

  std::int64_t block_size() const { return config_.block_size; }
  mx::Dtype dtype() const { return dtype_; }

 private:
  struct Layer;
  struct Angles {
    mx::array cos;
    mx::array sin;
  };
  // Where the rows are.
  struct Places {
    const DocumentBlocks& blocks;
    Angles of_rows;
    Angles of_context;
  };
  const mx::array& weight(const std::vector<mx::array>& weights, const std::string& name) const;
  mx::array norm(const mx::array& x, const mx::array& weight) const;
  // The angles of positions, [..., 1, E / 2].
  Angles angles(const std::vector<std::int32_t>& positions, const mx::Shape& shape) const;
  mx::array embed(const DocumentBlocks& blocks, int count) const;
  // Rows [..., heads, E] of x [..., D] by a projection.
  mx::array heads(const mx::array& x, const mx::array& projection) const;
  // The rows of heads(), normed and turned.
  mx::array turned_heads(const mx::array& x,
                         const mx::array& projection,
                         const mx::array& head_norm,
                         const Angles& angles) const;
  mx::array attention(const Layer& layer,
                      const mx::array& normed,
                      const mx::array& features,
                      const Places& places) const;
  // The attention of rows of queries [K, N, B * G, E] over the values of context and block.
  mx::array attended(const mx::array& queries,
                     const std::vector<mx::array>& keys,
                     const std::vector<mx::array>& values,
                     const mx::array& mask) const;
  // 0 where a row [N, B] sees a key, a large negative number elsewhere: [1, N, B, 1, C + B].
  mx::array mask(std::int64_t layer, const DocumentBlocks& blocks, int context) const;
  Places places(const DocumentBlocks& blocks, int context) const;
  bool is_causal(std::int64_t layer) const;

  DrafterConfig config_;
  mx::Dtype dtype_;
  float embed_scale_;
  std::vector<std::string> names_;
  std::vector<float> frequencies_;
  mx::array embedding_;
  mx::array head_;
};

}  // namespace kakeya::train
