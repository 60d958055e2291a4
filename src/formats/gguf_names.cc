#include "formats/gguf_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

namespace kakeya {

namespace {

struct Name {
  std::string_view gguf;
  std::string_view checkpoint;
};

constexpr std::array kArchitectures = {"gemma4", "qwen3", "dflash"};

// The tensors of the whole model, in all architectures.
constexpr std::array kModelNames = {
    Name{"token_embd.weight", "embed_tokens.weight"},
    Name{"output_norm.weight", "norm.weight"},
    Name{"output.weight", "lm_head.weight"},
};

constexpr std::array kGemma4ModelNames = {
    Name{"per_layer_token_embd.weight", "embed_tokens_per_layer.weight"},
    Name{"per_layer_model_proj.weight", "per_layer_model_projection.weight"},
    Name{"per_layer_proj_norm.weight", "per_layer_projection_norm.weight"},
};

constexpr std::array kDflashModelNames = {
    Name{"fc.weight", "fc.weight"},
    Name{"enc.output_norm.weight", "hidden_norm.weight"},
};

// The tensors of a layer, behind "blk.N." and "layers.N.".
constexpr std::array kLayerNames = {
    Name{"attn_norm.weight", "input_layernorm.weight"},
    Name{"attn_q.weight", "self_attn.q_proj.weight"},
    Name{"attn_k.weight", "self_attn.k_proj.weight"},
    Name{"attn_v.weight", "self_attn.v_proj.weight"},
    Name{"attn_output.weight", "self_attn.o_proj.weight"},
    Name{"attn_q_norm.weight", "self_attn.q_norm.weight"},
    Name{"attn_k_norm.weight", "self_attn.k_norm.weight"},
    Name{"ffn_gate.weight", "mlp.gate_proj.weight"},
    Name{"ffn_up.weight", "mlp.up_proj.weight"},
    Name{"ffn_down.weight", "mlp.down_proj.weight"},
};

// The two norms of a Qwen3 layer have other names in GGUF than norms of the same names in Gemma's.
constexpr std::array kQwen3LayerNames = {
    Name{"ffn_norm.weight", "post_attention_layernorm.weight"},
};

constexpr std::array kGemma4LayerNames = {
    Name{"post_attention_norm.weight", "post_attention_layernorm.weight"},
    Name{"ffn_norm.weight", "pre_feedforward_layernorm.weight"},
    Name{"post_ffw_norm.weight", "post_feedforward_layernorm.weight"},
    Name{"pre_ffw_norm_2.weight", "pre_feedforward_layernorm_2.weight"},
    Name{"post_ffw_norm_1.weight", "post_feedforward_layernorm_1.weight"},
    Name{"post_ffw_norm_2.weight", "post_feedforward_layernorm_2.weight"},
    Name{"ffn_gate_inp.weight", "router.proj.weight"},
    Name{"ffn_gate_inp.scale", "router.scale"},
    Name{"ffn_gate_up_exps.weight", "experts.gate_up_proj"},
    Name{"ffn_gate_exps.weight", "experts.gate_proj"},
    Name{"ffn_up_exps.weight", "experts.up_proj"},
    Name{"ffn_down_exps.weight", "experts.down_proj"},
    Name{"ffn_down_exps.scale", "router.per_expert_scale"},
    Name{"layer_output_scale.weight", "layer_scalar"},
    Name{"inp_gate.weight", "per_layer_input_gate.weight"},
    Name{"proj.weight", "per_layer_projection.weight"},
    Name{"post_norm.weight", "post_per_layer_input_norm.weight"},
};

using Table = std::span<const Name>;
using Side = std::string_view Name::*;

Table own_model_names(GgufArchitecture architecture) {
  if (architecture == GgufArchitecture::kGemma4) return kGemma4ModelNames;
  return architecture == GgufArchitecture::kDflash ? Table(kDflashModelNames) : Table();
}

Table own_layer_names(GgufArchitecture architecture) {
  if (architecture == GgufArchitecture::kGemma4) return kGemma4LayerNames;
  return kQwen3LayerNames;
}

std::string_view find_name(Table table, Side from, Side to, std::string_view name) {
  const auto found = std::ranges::find(table, name, from);
  return found == table.end() ? std::string_view() : (*found).*to;
}

// A number as it is written in names: without leading zeros, and not too long.
bool is_layer_number(std::string_view text) {
  const bool digits = std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  return digits && !text.empty() && text.size() <= 6 && (text.size() == 1 || text.front() != '0');
}

struct Direction {
  Side from;
  Side to;
  std::string_view from_layer;  // before the layer's number
  std::string_view to_layer;
};

constexpr Direction kToCheckpoint = {&Name::gguf, &Name::checkpoint, "blk.", "layers."};
constexpr Direction kToGguf = {&Name::checkpoint, &Name::gguf, "layers.", "blk."};

std::string translate(GgufArchitecture architecture,
                      std::string_view name,
                      const Direction& direction) {
  const auto find = [&](Table common, Table own, std::string_view what) {
    const std::string_view found = find_name(common, direction.from, direction.to, what);
    return found.empty() ? find_name(own, direction.from, direction.to, what) : found;
  };
  if (!name.starts_with(direction.from_layer)) {
    return std::string(find(kModelNames, own_model_names(architecture), name));
  }
  name.remove_prefix(direction.from_layer.size());
  const std::size_t dot = name.find('.');
  if (dot == std::string_view::npos || !is_layer_number(name.substr(0, dot))) return "";
  const std::string_view tail =
      find(kLayerNames, own_layer_names(architecture), name.substr(dot + 1));
  if (tail.empty()) return "";
  return fmt::format("{}{}.{}", direction.to_layer, name.substr(0, dot), tail);
}

}  // namespace

std::string_view gguf_architecture_name(GgufArchitecture architecture) {
  return kArchitectures[static_cast<std::size_t>(architecture)];
}

std::optional<GgufArchitecture> parse_gguf_architecture(std::string_view name) {
  const auto found = std::ranges::find(kArchitectures, name);
  if (found == kArchitectures.end()) return std::nullopt;
  return static_cast<GgufArchitecture>(found - kArchitectures.begin());
}

std::string checkpoint_tensor_name(GgufArchitecture architecture, std::string_view gguf_name) {
  return translate(architecture, gguf_name, kToCheckpoint);
}

std::string gguf_tensor_name(GgufArchitecture architecture, std::string_view checkpoint_name) {
  return translate(architecture, checkpoint_name, kToGguf);
}

}  // namespace kakeya
