// The DFlash drafter: a few Qwen3-style layers that fill a block of masked positions in one pass,
// looking at the target's own layer outputs (taps) instead of a prefix of their own. Embedding and
// head are the target's.
//
//   context   features c(p) = hidden_norm(fc [tap_1(p) ... tap_n(p)]) of every committed position;
//             each layer makes its keys and values of c(p) once and keeps them
//   block     [last token, mask, mask, ...] at positions C, C + 1, ...; row r predicts the token at
//             its own position C + r, so row 0 is not used
//
// The layers of DFlash 2 have convolutions over the rows of a block (dflash/convolved_layer.h), and
// a selector (decode/candidate_walk.h) chooses among each row's likeliest tokens by the token
// before.
//
// Source: Chen et al., "DFlash: block diffusion for flash speculative decoding", and the published
// z-lab implementation; docs/speculation.md has the equations.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "formats/drafter_config.h"
#include "kv/kv_cache.h"
#include "model/decoder.h"
#include "model/dflash/convolved_layer.h"
#include "model/llama/layer.h"
#include "model/weight_loader.h"

namespace kakeya::dflash {

// Intermediate rows of a pass of at most max_rows rows, all of one arena.
struct DraftActivations {
  Activations layers;
  Rows features;  // [T, D]
  ConvolutionRows convolutions;

  static DraftActivations layout(Arena& arena, const DrafterConfig& config, std::int64_t max_rows);
};

// The selector of DFlash 2. Token b behind token a in row r has the score
// logit(b) + sum over i of A[a, i] * q_r[i] * S[b, i], where q_r = H h_r of the row's final norm.
struct CandidateSelector {
  std::unique_ptr<Matrix> predecessor_codebook;  // A [V, R]
  std::unique_ptr<Matrix> successor_codebook;    // S [V, R]
  std::unique_ptr<Matrix> hidden_projection;     // H [R, D]
};

class Drafter {
 public:
  // Loads all weights; codebooks are read where they lie if the loader's source keeps them, which
  // must outlive the drafter then. So must `target`, which may be a measured one (without weights)
  // if the loader measures.
  // Errors: as check_drafter_fits, those of the loader.
  static Result<std::unique_ptr<Drafter>> load(const DrafterConfig& config,
                                               const Decoder& target,
                                               WeightLoader& loader,
                                               Compute compute);

  // The configuration as loaded, with the target's vocabulary.
  const DrafterConfig& config() const { return config_; }
  // The most tokens of one block: block_size - 1.
  std::int64_t max_length() const { return config_.block_size - 1; }
  // Null for a drafter of DFlash.
  const CandidateSelector* selector() const {
    return config_.has_selector() ? &selector_ : nullptr;
  }
  // Factor of the block's embeddings.
  float embed_scale() const { return embed_scale_; }

  // In all of these the executor has begun `batch`.

  // Fills the reserved context rows of the batch, which needs no ids, from the target's taps of
  // them [T, num_taps * D]; leaves the features [T, D] in a.features. Never allocates.
  void extend_context(ConstRows taps,
                      const Batch& batch,
                      Executor& executor,
                      const DraftActivations& a) const;

  // Computes the outputs of k_proj and v_proj of every layer, layer after layer, for the context
  // features that follow from `taps`: [T, L * K * E] each.
  void project_context(
      ConstRows taps, Executor& executor, const DraftActivations& a, Rows keys, Rows values) const;

  // Logits [n, V] of the rows of which the batch wants them. Its segments are blocks, whose context
  // rows are reserved and not to be committed. Returns the rows after the final norm, [T, D], times
  // output_multiplier. Of DFlash 2, whose selector comes between, neither rows nor logits know
  // output_multiplier and final_logit_softcapping, and `gates` [n, R] become q of the same rows as
  // the logits, unless they are empty; of DFlash they are not used.
  ConstRows forward(const Batch& batch,
                    Executor& executor,
                    const DraftActivations& a,
                    Rows logits,
                    Rows gates = {}) const;

 private:
  // features [T, D] = c(p) of the taps.
  void make_features(ConstRows taps, Executor& executor, Rows features) const;

  Drafter(DrafterConfig config, const Decoder& target, float embed_scale)
      : config_(std::move(config)), target_(target), embed_scale_(embed_scale) {}

  DrafterConfig config_;
  const Decoder& target_;
  float embed_scale_;
  std::unique_ptr<Matrix> fc_;  // [D, num_taps * D]
  WeightVector hidden_norm_;    // [D]
  WeightVector norm_;           // [D]; of DFlash with output_multiplier folded in
  std::vector<llama::LayerWeights> layers_;
  std::vector<ConvolvedLayer> convolutions_;  // one a layer; of DFlash none
  CandidateSelector selector_;
  WeightVector inverse_frequencies_;
};

// Storage of the context: full layers as `full` says, rings for sliding ones.
KvCacheSpec plan_context(const DrafterConfig& config,
                         std::int64_t context,
                         std::int64_t max_rows,
                         const KvLayerPlan& full);

// Scratch of passes of at most max_rows rows.
ExecutorPlan plan_drafter_executor(const DrafterConfig& config, std::int64_t max_rows);

}  // namespace kakeya::dflash
