#include "formats/gguf_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "formats/families.h"

namespace kakeya {

namespace {

struct Name {
  std::string_view gguf;
  std::string_view checkpoint;
};

constexpr std::string_view kDrafter = "dflash";

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
    Name{"selector_predecessor.weight", "candidate_selector.predecessor_codebook.weight"},
    Name{"selector_successor.weight", "candidate_selector.successor_codebook.weight"},
    Name{"selector_hidden.weight", "candidate_selector.hidden_projection.weight"},
    // As older forks write them.
    Name{"selector.pred_codebook", "candidate_selector.predecessor_codebook.weight"},
    Name{"selector.succ_codebook", "candidate_selector.successor_codebook.weight"},
    Name{"selector.hidden_proj.weight", "candidate_selector.hidden_projection.weight"},
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
    Name{"attn_q.bias", "self_attn.q_proj.bias"},
    Name{"attn_k.bias", "self_attn.k_proj.bias"},
    Name{"attn_v.bias", "self_attn.v_proj.bias"},
    Name{"attn_output.bias", "self_attn.o_proj.bias"},
    Name{"ffn_gate.bias", "mlp.gate_proj.bias"},
    Name{"ffn_up.bias", "mlp.up_proj.bias"},
    Name{"ffn_down.bias", "mlp.down_proj.bias"},
};

// Convolutions of DFlash 2; the second names are those of older forks.
constexpr std::array kDflashLayerNames = {
    Name{"attn_conv_base", "attention_conv.base_kernel"},
    Name{"attn_conv_proj.weight", "attention_conv.kernel_projection.weight"},
    Name{"ffn_conv_base", "mlp_conv.base_kernel"},
    Name{"ffn_conv_proj.weight", "mlp_conv.kernel_projection.weight"},
    Name{"attn_conv.base", "attention_conv.base_kernel"},
    Name{"attn_conv.proj.weight", "attention_conv.kernel_projection.weight"},
    Name{"ffn_conv.base", "mlp_conv.base_kernel"},
    Name{"ffn_conv.proj.weight", "mlp_conv.kernel_projection.weight"},
};

// Where norms stand before attention and MLP alone, the second one has another name in GGUF than
// the norm of the same name in Gemma's layers.
constexpr std::array kNormsBefore = {
    Name{"ffn_norm.weight", "post_attention_layernorm.weight"},
};

constexpr std::array kNormsAround = {
    Name{"post_attention_norm.weight", "post_attention_layernorm.weight"},
    Name{"ffn_norm.weight", "pre_feedforward_layernorm.weight"},
    Name{"post_ffw_norm.weight", "post_feedforward_layernorm.weight"},
};

// Experts in place of the MLP.
constexpr std::array kExpertNames = {
    Name{"ffn_gate_inp.weight", "mlp.gate.weight"},
    Name{"ffn_gate_up_exps.weight", "mlp.experts.gate_up_proj"},
    Name{"ffn_gate_exps.weight", "mlp.experts.gate_proj"},
    Name{"ffn_up_exps.weight", "mlp.experts.up_proj"},
    Name{"ffn_down_exps.weight", "mlp.experts.down_proj"},
};

constexpr std::array kGemma4LayerNames = {
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

// The tables of a layer's tensors. A drafter's layers are Qwen3's.
std::array<Table, 3> layer_names(GgufArchitecture architecture) {
  if (architecture == GgufArchitecture::kDflash)
    return {kLayerNames, kNormsBefore, kDflashLayerNames};
  const Family& family = family_of(static_cast<Architecture>(architecture));
  const Table norms = family.norms == LayerNorms::kAround ? Table(kNormsAround) : kNormsBefore;
  if (family.experts == Experts::kInsteadOfMlp) return {kLayerNames, norms, kExpertNames};
  const bool gemma4 = architecture == GgufArchitecture::kGemma4;
  return {kLayerNames, norms, gemma4 ? Table(kGemma4LayerNames) : Table()};
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
  const auto find = [&](std::span<const Table> tables, std::string_view what) {
    std::string_view found;
    for (const Table table : tables) {
      if (found.empty()) found = find_name(table, direction.from, direction.to, what);
    }
    return found;
  };
  if (!name.starts_with(direction.from_layer)) {
    return std::string(find(std::array{Table(kModelNames), own_model_names(architecture)}, name));
  }
  name.remove_prefix(direction.from_layer.size());
  const std::size_t dot = name.find('.');
  if (dot == std::string_view::npos || !is_layer_number(name.substr(0, dot))) return "";
  const std::string_view tail = find(layer_names(architecture), name.substr(dot + 1));
  if (tail.empty()) return "";
  return fmt::format("{}{}.{}", direction.to_layer, name.substr(0, dot), tail);
}

}  // namespace

std::string_view gguf_architecture_name(GgufArchitecture architecture) {
  if (architecture == GgufArchitecture::kDflash) return kDrafter;
  return family_of(static_cast<Architecture>(architecture)).name;
}

std::string known_gguf_architectures() {
  std::string names;
  for (const Family& family : families()) names += std::string(family.name) + ", ";
  return names + std::string(kDrafter);
}

std::optional<GgufArchitecture> parse_gguf_architecture(std::string_view name) {
  if (name == kDrafter) return GgufArchitecture::kDflash;
  const Family* family = find_gguf_family(name);
  if (family == nullptr) return std::nullopt;
  return gguf_architecture_of(family->architecture);
}

std::string checkpoint_tensor_name(GgufArchitecture architecture, std::string_view gguf_name) {
  return translate(architecture, gguf_name, kToCheckpoint);
}

std::string gguf_tensor_name(GgufArchitecture architecture, std::string_view checkpoint_name) {
  return translate(architecture, checkpoint_name, kToGguf);
}

}  // namespace kakeya
