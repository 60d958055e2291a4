// A target network as the decoding layer sees it: tokens in, logits and chosen layer outputs out.
// The decoders of Gemma and of Llama implement it, one for each way in which norms stand in a
// layer; each forward is written once against the backend seam.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "formats/model_config.h"
#include "kv/kv_cache.h"
#include "model/arena.h"
#include "model/weight_loader.h"

namespace kakeya {

// A tap names a point of the residual stream: kTapEmbedding, the output of layer 0 ... L - 1 (after
// its layer_scalar), or L for the last layer's output after the final norm.
inline constexpr std::int64_t kTapEmbedding = -1;

// Intermediate rows of one forward pass, all of one arena. Sizes follow from the config; the names
// are those of docs/forward-pass.md.
struct Activations {
  Rows hidden;             // [T, D] residual stream
  Rows normed;             // [T, D]
  Rows queries;            // [T, H * E], the widest layer
  Rows keys;               // [T, K * E]
  Rows values;             // [T, K * E]
  Rows attended;           // [T, H * E]
  Rows router_input;       // [T, D], in the place of queries
  Rows expert_input;       // [T, D], in the place of attended
  Rows branch;             // [T, D] what a sub-layer adds
  Rows expert_branch;      // [T, D]
  Rows mlp_hidden;         // [T, F]
  Rows mlp_up;             // [T, F], where the MLP has biases
  Rows router_logits;      // [T, X]
  Rows per_layer_input;    // [T, L * P]
  Rows per_layer_context;  // [T, L * P]
  Rows per_layer_gate;     // [T, P]
  Routing routing;
  RopeTable rope_sliding;
  RopeTable rope_full;

  static Activations layout(Arena& arena, const ModelConfig& config, std::int64_t max_rows);

  // Views the same memory as `rows` rows.
  Activations with_rows(std::int64_t rows) const;
};

// The output of a pass.
struct ForwardOutput {
  Rows logits;  // [n, V], of the rows for which the batch wants them, in its order
  std::span<const std::int64_t> tap_points = {};
  Rows taps = {};  // [T, num_taps * D], in the order of the points; ignored without any
  // [T, D], the last layer's output after the final norm, apart from any taps; empty: not wanted.
  Rows hidden = {};
};

// Copies the tapped rows of one pass to where the caller wants them.
class TapWriter {
 public:
  TapWriter(std::span<const std::int64_t> taps, Rows out, Executor& executor)
      : taps_(taps), out_(out), executor_(executor) {}

  // Writes `rows` [T, D] to the columns of every tap that names `point`.
  void write(std::int64_t point, ConstRows rows);

 private:
  std::span<const std::int64_t> taps_;
  Rows out_;
  Executor& executor_;
};

// The rows of `normed` [T, D] of which the batch wants logits, one after the other: where they lie,
// or gathered in `scratch` [T, D].
ConstRows logit_inputs(const Batch& batch, ConstRows normed, Rows scratch, Executor& executor);

class Decoder {
 public:
  virtual ~Decoder() = default;

  const ModelConfig& config() const { return config_; }

  // Index into the cache of the layer whose keys and values `layer` attends to.
  std::int64_t cache_index(std::int64_t layer) const {
    return cache_index_[static_cast<std::size_t>(layer)];
  }

  // Runs the tokens of the batch, which the executor has begun, and writes their keys and values
  // into the rows reserved for them; the caller commits them. Never fails and never allocates:
  // arguments were checked when tokens were pushed (Timeline::push).
  virtual void forward(const Batch& batch,
                       Executor& executor,
                       Activations& activations,
                       const ForwardOutput& output) const = 0;

  // The parts that a drafter borrows: the table of token embeddings [V, D], the factor its rows are
  // multiplied by, and the head [V, D] (the same matrix when tied).
  virtual const Matrix& embed_tokens() const = 0;
  virtual const Matrix& lm_head() const = 0;
  virtual float embed_scale() const = 0;

 protected:
  explicit Decoder(ModelConfig config);

  // The end of a pass: a.normed = the norm of a.hidden, and of it what the caller wants.
  void write_outputs(const WeightVector& norm,
                     const Batch& batch,
                     Executor& executor,
                     Activations& a,
                     TapWriter& taps,
                     const ForwardOutput& output) const;

 private:
  ModelConfig config_;
  std::vector<std::int64_t> cache_index_;
};

// How the keys and values of one class of layers are kept.
struct KvLayerPlan {
  KvFormat format = KvFormat::kF32;
  std::int64_t sink = 0;  // as in LayerCacheSpec
  std::int64_t kept = 0;
  bool restored = false;
  // Rows between the sink and the kept ones in calibrated codes of so many bits.
  std::optional<KvBits> coded = {};
};

struct KvPlan {
  KvLayerPlan full;
  KvLayerPlan sliding;
  // Store keys and values even where one vector would do (attention_k_eq_v).
  bool pairs = false;
  // The codes of restored rows: their elements, and how they are stored.
  std::int64_t rank = 0;
  KvFormat codes = KvFormat::kF32;
  bool one_code = false;  // of keys and values
};

// Cache spec and plan from the config alone, for estimates before anything is loaded.
KvCacheSpec plan_cache(const ModelConfig& config,
                       std::int64_t context,
                       std::int64_t max_rows,
                       const KvPlan& plan);
ExecutorPlan plan_executor(const ModelConfig& config, std::int64_t max_rows);

// theta^(-2i / head_dim) / factor for the rotated pairs, 0 for the rest; [head_dim / 2]; with the
// divisors of Llama 3 in place of a factor.
// Source: transformers, _compute_proportional_rope_parameters (partial_rotary_factor < 1).
std::vector<float> inverse_frequencies(const RopeParameters& rope, std::int64_t head_dim);

// Loads every weight of the model that `config` describes.
// Errors: of the source and the budget, the first one.
Result<std::unique_ptr<Decoder>> load_decoder(const ModelConfig& config,
                                              WeightLoader& loader,
                                              Compute compute);

}  // namespace kakeya
