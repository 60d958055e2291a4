#include "model/dflash/dflash.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace kakeya::dflash {
namespace {

// True if block rows of `layer` see only the rows before them.
bool is_causal(const DrafterConfig& config, std::int64_t layer) {
  return config.is_causal.value_or(config.layers.is_sliding(layer));
}

std::int64_t tap_width(const DrafterConfig& config) {
  return static_cast<std::int64_t>(config.target_layer_ids.size()) * config.layers.hidden_size;
}

// Writes what k_proj and v_proj of a layer give for `input` [T, D] to the columns from `column` on;
// returns the column behind them.
std::int64_t project(const llama::LayerWeights& layer,
                     ConstRows input,
                     Executor& executor,
                     const Activations& a,
                     std::int64_t column,
                     Rows keys,
                     Rows values) {
  const std::int64_t width = layer.shape.num_kv_heads * layer.shape.head_dim;
  const Rows own_keys{a.keys.data, input.count, width};
  const Rows own_values{a.values.data, input.count, width};
  executor.matmul(input, *layer.self_attn.k_proj, own_keys);
  executor.matmul(input, *layer.self_attn.v_proj, own_values);
  executor.copy_columns(own_keys, keys.data, keys.width, column);
  executor.copy_columns(own_values, values.data, values.width, column);
  return column + width;
}

CandidateSelector load_selector(WeightLoader& loader, Compute compute) {
  const std::string prefix = "candidate_selector.";
  CandidateSelector selector;
  selector.predecessor_codebook = loader.table(prefix + "predecessor_codebook.weight", compute);
  selector.successor_codebook = loader.table(prefix + "successor_codebook.weight", compute);
  selector.hidden_projection = loader.matrix(prefix + "hidden_projection.weight", compute);
  return selector;
}

}  // namespace

DraftActivations DraftActivations::layout(Arena& arena,
                                          const DrafterConfig& config,
                                          std::int64_t max_rows) {
  DraftActivations a;
  a.layers = Activations::layout(arena, config.layers, max_rows);
  a.features = arena.rows(max_rows, config.layers.hidden_size);
  a.convolutions = ConvolutionRows::layout(arena, config, max_rows);
  return a;
}

Result<std::unique_ptr<Drafter>> Drafter::load(const DrafterConfig& config,
                                               const Decoder& target,
                                               WeightLoader& loader,
                                               Compute compute) {
  KAKEYA_TRY(check_drafter_fits(config, target.config()));
  DrafterConfig resolved = config;
  resolved.layers.vocab_size = target.config().vocab_size;  // configs may leave it out
  const float embed_scale = config.input_embedding_scale.value_or(target.embed_scale());
  std::unique_ptr<Drafter> drafter(new Drafter(std::move(resolved), target, embed_scale));
  const ModelConfig& layers = drafter->config_.layers;
  drafter->inverse_frequencies_ =
      loader.constant(inverse_frequencies(layers.rope_full, layers.head_dim));
  drafter->fc_ = loader.matrix("fc.weight", compute);
  drafter->hidden_norm_ = loader.vector("hidden_norm.weight");
  drafter->norm_ =
      loader.vector("norm.weight", config.has_selector() ? 1.0F : config.output_multiplier);
  for (std::int64_t l = 0; l < layers.num_hidden_layers; ++l) {
    drafter->layers_.push_back(llama::load_layer(layers, l, l, loader, compute));
    drafter->layers_.back().shape.bidirectional = !is_causal(config, l);
    if (!config.has_selector()) continue;
    drafter->convolutions_.push_back(load_convolutions(l, loader, compute));
  }
  if (config.has_selector()) drafter->selector_ = load_selector(loader, compute);
  KAKEYA_TRY(loader.status());
  return drafter;
}

void Drafter::make_features(ConstRows taps, Executor& executor, Rows features) const {
  executor.matmul(taps, *fc_, features);
  executor.rms_norm(features, hidden_norm_.data(), config_.layers.rms_norm_eps, features);
}

void Drafter::extend_context(ConstRows taps,
                             const Batch& batch,
                             Executor& executor,
                             const DraftActivations& a) const {
  Activations rows = a.layers.with_rows(taps.count);
  const Rows features = first_rows(a.features, taps.count);
  make_features(taps, executor, features);
  executor.make_rope_table(inverse_frequencies_, rows.rope_full);
  // The features meet no input_layernorm: hidden_norm was the only one.
  for (const llama::LayerWeights& layer : layers_) {
    store_keys_and_values(layer.self_attn, layer.shape, rows.rope_full, features, batch, executor,
                          rows);
  }
}

void Drafter::project_context(
    ConstRows taps, Executor& executor, const DraftActivations& a, Rows keys, Rows values) const {
  const Activations rows = a.layers.with_rows(taps.count);
  const Rows features = first_rows(a.features, taps.count);
  make_features(taps, executor, features);
  std::int64_t column = 0;
  for (const llama::LayerWeights& layer : layers_) {
    column = project(layer, features, executor, rows, column, keys, values);
  }
}

ConstRows Drafter::forward(const Batch& batch,
                           Executor& executor,
                           const DraftActivations& a,
                           Rows logits,
                           Rows gates) const {
  Activations rows = a.layers.with_rows(batch.rows());
  executor.make_rope_table(inverse_frequencies_, rows.rope_full);
  executor.embed(target_.embed_tokens(), embed_scale_, rows.hidden);
  const ConvolutionRows convolved = a.convolutions.with_rows(batch.rows());
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    if (convolutions_.empty()) {
      llama::decoder_layer(layers_[l], rows.rope_full, batch, executor, rows);
    } else {
      run_convolved_layer(config_, layers_[l], convolutions_[l], rows.rope_full, batch, executor,
                          rows, convolved);
    }
  }
  executor.rms_norm(rows.hidden, norm_.data(), config_.layers.rms_norm_eps, rows.normed);
  if (logits.count == 0) return rows.normed;
  const ConstRows inputs = logit_inputs(batch, rows.normed, rows.branch, executor);
  executor.matmul(inputs, target_.lm_head(), logits);
  if (config_.has_selector()) {
    if (gates.count > 0) executor.matmul(inputs, *selector_.hidden_projection, gates);
  } else if (config_.layers.final_logit_softcapping > 0.0F) {
    executor.softcap(logits, config_.layers.final_logit_softcapping);
  }
  return rows.normed;
}

KvCacheSpec plan_context(const DrafterConfig& config,
                         std::int64_t context,
                         std::int64_t max_rows,
                         const KvLayerPlan& full) {
  const KvPlan plan{.full = full, .sliding = {.format = full.format}};
  KvCacheSpec spec = plan_cache(config.layers, context, max_rows, plan);
  spec.of_drafter = true;
  return spec;
}

ExecutorPlan plan_drafter_executor(const DrafterConfig& config, std::int64_t max_rows) {
  ExecutorPlan plan = plan_executor(config.layers, max_rows);
  plan.max_matmul_width = std::max(plan.max_matmul_width, tap_width(config));
  return plan;
}

}  // namespace kakeya::dflash
