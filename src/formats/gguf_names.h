// The names of architectures and tensors in GGUF files, and what they are called in Hugging Face
// checkpoints: one table, read in both directions. docs/formats/gguf.md explains it. Knows names
// alone: shapes and values are the same on both sides.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "formats/model_config.h"

namespace kakeya {

// The values of `general.architecture` of models that can be used: those of Architecture, by the
// names of formats/families.h, and of drafters.
enum class GgufArchitecture : std::uint8_t {
  kGemma4 = static_cast<std::uint8_t>(Architecture::kGemma4),
  kQwen3 = static_cast<std::uint8_t>(Architecture::kQwen3),
  kGemma3 = static_cast<std::uint8_t>(Architecture::kGemma3),
  kDflash = UINT8_MAX  // "dflash": a drafter
};

// The one of a model's architecture.
constexpr GgufArchitecture gguf_architecture_of(Architecture architecture) {
  return static_cast<GgufArchitecture>(architecture);
}

// "gemma4, qwen3, ..., dflash"
std::string known_gguf_architectures();

std::string_view gguf_architecture_name(GgufArchitecture architecture);
// Nothing for another architecture.
std::optional<GgufArchitecture> parse_gguf_architecture(std::string_view name);

// Divisors of the frequencies of pairs, which checkpoints have not: of Gemma 4's full layers, and
// of Llama 3.
inline constexpr std::string_view kGgufRopeFactors = "rope_freqs.weight";

// The name without prefix in a checkpoint ("layers.3.self_attn.q_proj.weight") of a tensor of a
// GGUF file ("blk.3.attn_q.weight"), and the other way round. Experts may be fused
// ("layers.3.experts.gate_up_proj") or not ("layers.3.experts.gate_proj"). Empty for a name that is
// not in the table; numbers of layers are not checked, but for their spelling.
std::string checkpoint_tensor_name(GgufArchitecture architecture, std::string_view gguf_name);
std::string gguf_tensor_name(GgufArchitecture architecture, std::string_view checkpoint_name);

}  // namespace kakeya
