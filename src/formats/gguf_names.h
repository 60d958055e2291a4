// The names of architectures and tensors in GGUF files, and what they are called in Hugging Face
// checkpoints: one table, read in both directions. docs/formats/gguf.md explains it. Knows names
// alone: shapes and values are the same on both sides.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kakeya {

// The values of `general.architecture` of models that can be used.
enum class GgufArchitecture : std::uint8_t {
  kGemma4,  // "gemma4": with experts, dense, with per-layer embeddings
  kQwen3,   // "qwen3": dense
  kDflash   // "dflash": a drafter
};

std::string_view gguf_architecture_name(GgufArchitecture architecture);
// Nothing for another architecture.
std::optional<GgufArchitecture> parse_gguf_architecture(std::string_view name);

// The frequency factors that GGUF files of Gemma 4 have and checkpoints have not.
inline constexpr std::string_view kGgufRopeFactors = "rope_freqs.weight";

// The name without prefix in a checkpoint ("layers.3.self_attn.q_proj.weight") of a tensor of a
// GGUF file ("blk.3.attn_q.weight"), and the other way round. Experts may be fused
// ("layers.3.experts.gate_up_proj") or not ("layers.3.experts.gate_proj"). Empty for a name that is
// not in the table; numbers of layers are not checked, but for their spelling.
std::string checkpoint_tensor_name(GgufArchitecture architecture, std::string_view gguf_name);
std::string gguf_tensor_name(GgufArchitecture architecture, std::string_view checkpoint_name);

}  // namespace kakeya
