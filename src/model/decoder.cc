#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status.h"
#include "formats/families.h"
#include "model/gemma/gemma.h"
#include "model/llama/llama.h"

namespace kakeya {
namespace {

// The widest value of f(layer) over all layers.
template <typename F>
std::int64_t widest(const ModelConfig& config, F&& f) {
  std::int64_t width = 0;
  for (std::int64_t l = 0; l < config.num_hidden_layers; ++l) width = std::max(width, f(l));
  return width;
}

std::int64_t max_query_width(const ModelConfig& config) {
  return widest(config, [&](std::int64_t l) {
    return config.num_attention_heads * config.layer_head_dim(l);
  });
}

std::int64_t max_kv_width(const ModelConfig& config) {
  return widest(
      config, [&](std::int64_t l) { return config.layer_kv_heads(l) * config.layer_head_dim(l); });
}

std::int64_t max_mlp_width(const ModelConfig& config) {
  return widest(config, [&](std::int64_t l) { return config.layer_intermediate_size(l); });
}

// A layer that reads another layer's cache has a k_norm of its own, or none.
bool keys_follow_from_values(const ModelConfig& config, std::int64_t layer) {
  return config.values_are_keys(layer) && config.num_kv_shared_layers == 0;
}

// The codes of all layers.
void add_restoration(const ModelConfig& config, const KvPlan& plan, KvCacheSpec& spec) {
  spec.codes = std::ssize(spec.layers);
  spec.layers.push_back({.num_kv_heads = 1,
                         .head_dim = plan.rank,
                         .window = plan.full.restored ? 0 : config.sliding_window,
                         .format = plan.codes,
                         .one_vector = plan.one_code,
                         .is_codes = true});
}

// The calibrated codes of the layers that have them.
void add_codes(const KvPlan& plan, KvCacheSpec& spec) {
  const std::size_t owned = spec.layers.size();
  const auto add = [&](std::size_t index, std::int64_t bytes) {
    const LayerCacheSpec& layer = spec.layers[index];
    spec.layers.push_back({.num_kv_heads = layer.num_kv_heads,
                           .head_dim = layer.head_dim,
                           .window = layer.window,
                           .one_vector = true,
                           .is_codes = true,
                           .code_bytes = bytes});
    return std::ssize(spec.layers) - 1;
  };
  for (std::size_t i = 0; i < owned; ++i) {
    if (spec.layers[i].window != 0 || !plan.full.coded) continue;
    const std::int64_t head_dim = spec.layers[i].head_dim;
    const std::int64_t keys = add(i, CalibratedCode::key_bytes(head_dim, plan.full.coded->keys));
    spec.layers[i].key_codes = keys;
    if (spec.layers[i].one_vector) continue;
    const std::int64_t values =
        add(i, CalibratedCode::value_bytes(head_dim, plan.full.coded->values));
    spec.layers[i].value_codes = values;
  }
}

}  // namespace

Activations Activations::layout(Arena& arena, const ModelConfig& config, std::int64_t max_rows) {
  const std::int64_t d = config.hidden_size;
  const std::int64_t per_layer = config.num_hidden_layers * config.hidden_size_per_layer_input;
  Activations a;
  a.hidden = arena.rows(max_rows, d);
  a.normed = arena.rows(max_rows, d);
  const std::int64_t query_width =
      std::max(max_query_width(config), config.enable_moe_block ? d : 0);
  a.queries = arena.rows(max_rows, query_width);
  a.keys = arena.rows(max_rows, max_kv_width(config));
  a.values = arena.rows(max_rows, max_kv_width(config));
  a.attended = arena.rows(max_rows, query_width);
  a.branch = arena.rows(max_rows, d);
  a.mlp_hidden = arena.rows(max_rows, max_mlp_width(config));
  if (config.mlp_bias) a.mlp_up = arena.rows(max_rows, max_mlp_width(config));
  if (config.enable_moe_block) {
    a.router_input = {a.queries.data, max_rows, d};
    a.expert_input = {a.attended.data, max_rows, d};
    a.expert_branch = arena.rows(max_rows, d);
    a.router_logits = arena.rows(max_rows, config.num_experts);
    a.routing = {.experts = arena.take<std::int32_t>(max_rows * config.top_k_experts),
                 .weights = arena.take<float>(max_rows * config.top_k_experts),
                 .top_k = config.top_k_experts};
  }
  if (per_layer > 0) {
    a.per_layer_input = arena.rows(max_rows, per_layer);
    a.per_layer_context = arena.rows(max_rows, per_layer);
    a.per_layer_gate = arena.rows(max_rows, config.hidden_size_per_layer_input);
  }
  const auto rope = [&](std::int64_t head_dim) {
    const std::int64_t half = head_dim / 2;
    return RopeTable{arena.take<float>(max_rows * half), arena.take<float>(max_rows * half), half};
  };
  a.rope_sliding = rope(config.head_dim);
  a.rope_full = rope(config.global_head_dim);
  return a;
}

Activations Activations::with_rows(std::int64_t rows) const {
  Activations a = *this;
  for (Rows* piece :
       {&a.hidden, &a.normed, &a.queries, &a.keys, &a.values, &a.attended, &a.branch,
        &a.router_input, &a.expert_input, &a.expert_branch, &a.mlp_hidden, &a.mlp_up,
        &a.router_logits, &a.per_layer_input, &a.per_layer_context, &a.per_layer_gate}) {
    piece->count = rows;
  }
  return a;
}

void TapWriter::write(std::int64_t point, ConstRows rows) {
  for (std::size_t i = 0; i < taps_.size(); ++i) {
    if (taps_[i] != point) continue;
    executor_.copy_columns(rows, out_.data, out_.width, static_cast<std::int64_t>(i) * rows.width);
  }
}

ConstRows logit_inputs(const Batch& batch, ConstRows normed, Rows scratch, Executor& executor) {
  const std::int64_t count = batch.logit_rows();
  if (batch.logit_rows_are_last()) return last_rows(normed, count);
  const Rows gathered = first_rows(scratch, count);
  executor.gather_logit_rows(normed, gathered);
  return gathered;
}

KvCacheSpec plan_cache(const ModelConfig& config,
                       std::int64_t context,
                       std::int64_t max_rows,
                       const KvPlan& plan) {
  KvCacheSpec spec{.layers = {}, .context = context, .max_rows = max_rows};
  for (std::int64_t l = 0; l < config.num_hidden_layers; ++l) {
    if (!config.owns_kv(l)) continue;
    const KvLayerPlan& layer = config.is_sliding(l) ? plan.sliding : plan.full;
    spec.layers.push_back({.num_kv_heads = config.layer_kv_heads(l),
                           .head_dim = config.layer_head_dim(l),
                           .window = config.is_sliding(l) ? config.sliding_window : 0,
                           .format = layer.format,
                           .one_vector = !plan.pairs && keys_follow_from_values(config, l),
                           .sink = layer.sink,
                           .kept = layer.kept,
                           .restored = layer.restored});
  }
  if (plan.full.coded) add_codes(plan, spec);
  if (plan.full.restored || plan.sliding.restored) add_restoration(config, plan, spec);
  return spec;
}

ExecutorPlan plan_executor(const ModelConfig& config, std::int64_t max_rows) {
  return {.max_rows = max_rows,
          .max_matmul_width =
              std::max({config.hidden_size, max_query_width(config), max_mlp_width(config),
                        config.moe_intermediate_size, config.hidden_size_per_layer_input}),
          .max_query_width = max_query_width(config),
          .max_head_dim = std::max(config.head_dim, config.global_head_dim),
          .top_k_experts = config.enable_moe_block ? config.top_k_experts : 0,
          .num_experts = config.enable_moe_block ? config.num_experts : 0,
          .hidden_size = config.hidden_size,
          .moe_intermediate_size = config.enable_moe_block ? config.moe_intermediate_size : 0};
}

std::vector<float> inverse_frequencies(const RopeParameters& rope, std::int64_t head_dim) {
  const std::int64_t half = head_dim / 2;
  const auto rotated =
      static_cast<std::int64_t>(rope.partial_rotary_factor * static_cast<double>(head_dim) / 2.0);
  const std::vector<float> divisors = rope_divisors(rope, head_dim);
  std::vector<float> frequencies(static_cast<std::size_t>(half), 0.0F);
  for (std::int64_t i = 0; i < std::min(rotated, half); ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
    const double frequency = std::pow(rope.rope_theta, exponent);
    double divisor = rope.factor;
    if (!divisors.empty()) divisor = static_cast<double>(divisors[static_cast<std::size_t>(i)]);
    frequencies[static_cast<std::size_t>(i)] = static_cast<float>(frequency / divisor);
  }
  return frequencies;
}

Decoder::Decoder(ModelConfig config) : config_(std::move(config)) {
  std::int64_t owned = 0;
  for (std::int64_t l = 0; l < config_.num_hidden_layers; ++l) {
    const std::int64_t source = config_.kv_source_layer(l);
    cache_index_.push_back(source == l ? owned++ : cache_index_[static_cast<std::size_t>(source)]);
  }
}

void Decoder::write_outputs(const WeightVector& norm,
                            const Batch& batch,
                            Executor& executor,
                            Activations& a,
                            TapWriter& taps,
                            const ForwardOutput& output) const {
  executor.rms_norm(a.hidden, norm.data(), config_.rms_norm_eps, a.normed);
  taps.write(config_.num_hidden_layers, a.normed);
  if (output.hidden.count > 0) {
    executor.copy_columns(a.normed, output.hidden.data, output.hidden.width, 0);
  }
  if (output.logits.count == 0) return;
  executor.matmul(logit_inputs(batch, a.normed, a.branch, executor), lm_head(), output.logits);
  if (config_.final_logit_softcapping > 0.0F) {
    executor.softcap(output.logits, config_.final_logit_softcapping);
  }
}

Result<std::unique_ptr<Decoder>> load_decoder(const ModelConfig& config,
                                              WeightLoader& loader,
                                              Compute compute) {
  std::unique_ptr<Decoder> decoder;
  if (family_of(config.architecture).norms == LayerNorms::kAround) {
    decoder = gemma::load(config, loader, compute);
  } else {
    decoder = llama::load(config, loader, compute);
  }
  KAKEYA_TRY(loader.status());
  return decoder;
}

}  // namespace kakeya
