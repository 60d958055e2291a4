#include "formats/model_tensors.h"

#include <utility>

#include "base/status.h"
#include "formats/families.h"

namespace kakeya {

namespace {

constexpr std::int64_t kMaxParameters = std::int64_t{1} << 50;

// Collects the specs of one model.
class SpecList {
 public:
  explicit SpecList(const ModelConfig& config)
      : config_(config), family_(family_of(config.architecture)) {}

  TensorSpec& add(std::string name,
                  Shape shape,
                  TensorPresence presence = TensorPresence::kRequired) {
    return specs_.emplace_back(TensorSpec{
        .name = prefix_ + std::move(name), .shape = std::move(shape), .presence = presence});
  }

  void add_norm(std::string name,
                std::int64_t width,
                TensorPresence presence = TensorPresence::kRequired) {
    add(std::move(name), {width}, presence).less = family_.norms_less_one ? 1.0F : 0.0F;
  }

  void add_model() {
    const std::int64_t hidden = config_.hidden_size;
    add("embed_tokens.weight", {config_.vocab_size, hidden});
    if (config_.hidden_size_per_layer_input > 0) {
      const std::int64_t width = config_.hidden_size_per_layer_input;
      const std::int64_t all = config_.num_hidden_layers * width;
      add("embed_tokens_per_layer.weight", {config_.vocab_size_per_layer_input, all});
      add("per_layer_model_projection.weight", {all, hidden});
      add_norm("per_layer_projection_norm.weight", width);
    }
    for (std::int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
      prefix_ = "layers." + std::to_string(layer) + ".";
      add_attention(layer);
      if (family_.experts == Experts::kInsteadOfMlp) {
        add_experts("mlp.gate.weight", "mlp.experts.");
      } else {
        add_mlp(layer);
      }
      if (family_.norms == LayerNorms::kAround) {
        add_norm("pre_feedforward_layernorm.weight", hidden);
        add_norm("post_feedforward_layernorm.weight", hidden);
      }
      if (config_.architecture == Architecture::kGemma4) add_gemma4_layer();
    }
    prefix_.clear();
    add_norm("norm.weight", hidden);
    // A tied head may be there as a copy (formats/tied_head.h).
    add("lm_head.weight", {config_.vocab_size, hidden},
        config_.tie_word_embeddings ? TensorPresence::kOptional : TensorPresence::kRequired);
  }

  std::vector<TensorSpec> take() { return std::move(specs_); }

 private:
  void add_attention(std::int64_t layer) {
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t head_dim = config_.layer_head_dim(layer);
    const std::int64_t query_width = config_.num_attention_heads * head_dim;
    const std::int64_t kv_width = config_.layer_kv_heads(layer) * head_dim;
    // Published E-models keep the projections of layers that read another layer's keys and values.
    const TensorPresence kv =
        config_.owns_kv(layer) ? TensorPresence::kRequired : TensorPresence::kRedundant;
    const std::int64_t pairs = family_.neighbour_pairs ? head_dim : 0;
    add_norm("input_layernorm.weight", hidden);
    add_norm("post_attention_layernorm.weight", hidden);
    add("self_attn.q_proj.weight", {query_width, hidden}).paired_rows = pairs;
    if (family_.head_norms) add_norm("self_attn.q_norm.weight", head_dim);
    add("self_attn.k_proj.weight", {kv_width, hidden}, kv).paired_rows = pairs;
    if (family_.head_norms) add_norm("self_attn.k_norm.weight", head_dim, kv);
    if (!config_.values_are_keys(layer)) add("self_attn.v_proj.weight", {kv_width, hidden}, kv);
    add("self_attn.o_proj.weight", {hidden, query_width});
    if (config_.qkv_bias) {
      add("self_attn.q_proj.bias", {query_width}).paired_rows = pairs;
      add("self_attn.k_proj.bias", {kv_width}).paired_rows = pairs;
      add("self_attn.v_proj.bias", {kv_width});
    }
    if (config_.o_bias) add("self_attn.o_proj.bias", {hidden});
  }

  void add_mlp(std::int64_t layer) {
    const std::int64_t width = config_.layer_intermediate_size(layer);
    add("mlp.gate_proj.weight", {width, config_.hidden_size});
    add("mlp.up_proj.weight", {width, config_.hidden_size});
    add("mlp.down_proj.weight", {config_.hidden_size, width});
    if (!config_.mlp_bias) return;
    add("mlp.gate_proj.bias", {width});
    add("mlp.up_proj.bias", {width});
    add("mlp.down_proj.bias", {config_.hidden_size});
  }

  void add_experts(const std::string& router, const std::string& prefix) {
    const std::int64_t width = config_.moe_intermediate_size;
    add(router, {config_.num_experts, config_.hidden_size});
    add(prefix + "gate_up_proj", {config_.num_experts, 2 * width, config_.hidden_size});
    add(prefix + "down_proj", {config_.num_experts, config_.hidden_size, width});
  }

  void add_gemma4_layer() {
    const std::int64_t hidden = config_.hidden_size;
    add("layer_scalar", {1});
    if (config_.enable_moe_block) {
      add_norm("pre_feedforward_layernorm_2.weight", hidden);
      add_norm("post_feedforward_layernorm_1.weight", hidden);
      add_norm("post_feedforward_layernorm_2.weight", hidden);
      add("router.scale", {hidden});
      add("router.per_expert_scale", {config_.num_experts});
      add_experts("router.proj.weight", "experts.");
    }
    if (config_.hidden_size_per_layer_input > 0) {
      const std::int64_t width = config_.hidden_size_per_layer_input;
      add("per_layer_input_gate.weight", {width, hidden});
      add("per_layer_projection.weight", {hidden, width});
      add_norm("post_per_layer_input_norm.weight", hidden);
    }
  }

  const ModelConfig& config_;
  const Family& family_;
  std::string prefix_;
  std::vector<TensorSpec> specs_;
};

// Elements of a tensor, kMaxParameters at most.
std::int64_t saturating_elements(const Shape& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(elements, size, &elements)) return kMaxParameters;
  }
  return elements < kMaxParameters ? elements : kMaxParameters;
}

}  // namespace

std::vector<TensorSpec> expected_tensors(const ModelConfig& config) {
  SpecList list(config);
  list.add_model();
  return list.take();
}

Result<std::int64_t> total_parameters(std::span<const TensorSpec> specs) {
  std::int64_t total = 0;
  for (const TensorSpec& spec : specs) {
    if (spec.presence != TensorPresence::kRequired) continue;
    total += saturating_elements(spec.shape);
    if (total >= kMaxParameters) {
      return invalid_argument("the sizes make more than 2^50 parameters, first exceeded by {} {}",
                              spec.name, shape_string(spec.shape));
    }
  }
  return total;
}

Result<ParameterCount> parameter_count(const ModelConfig& config) {
  const std::vector<TensorSpec> specs = expected_tensors(config);
  ParameterCount count;
  KAKEYA_ASSIGN_OR_RETURN(count.total, total_parameters(specs));
  for (const TensorSpec& spec : specs) {
    if (spec.presence != TensorPresence::kRequired) continue;
    if (spec.name == "embed_tokens_per_layer.weight") continue;
    const bool routed = spec.name.find(".experts.") != std::string::npos;
    const std::int64_t elements = saturating_elements(spec.shape);
    count.touched_per_token +=
        routed ? elements / config.num_experts * config.top_k_experts : elements;
  }
  return count;
}

}  // namespace kakeya
