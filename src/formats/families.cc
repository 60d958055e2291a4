#include "formats/families.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/check.h"

namespace kakeya {

namespace {

constexpr std::array<std::string_view, 4> kGemma4Types = {"gemma4_text", "gemma4", "gemma4_unified",
                                                          "gemma4_unified_text"};
constexpr std::array<std::string_view, 1> kQwen3Types = {"qwen3"};
constexpr std::array<std::string_view, 2> kLlamaTypes = {"llama", "mistral"};
constexpr std::array<std::string_view, 2> kGemma3Types = {"gemma3_text", "gemma3"};
constexpr std::array<std::string_view, 1> kQwen2Types = {"qwen2"};
constexpr std::array<std::string_view, 1> kQwen3MoeTypes = {"qwen3_moe"};

constexpr std::array<std::string_view, 3> kGemma4Ends = {"<eos>", "<turn|>", "<|tool_response>"};
// Gemma 3's </s> is an HTML tag.
constexpr std::array<std::string_view, 2> kGemma3Ends = {"<end_of_turn>", "<eos>"};
constexpr std::array<std::string_view, 2> kQwenEnds = {"<|im_end|>", "<|endoftext|>"};
constexpr std::array<std::string_view, 6> kLlamaEnds = {
    "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "</s>"};

// In the order of Architecture.
constexpr std::array kFamilies = {
    Family{.architecture = Architecture::kGemma4,
           .name = "gemma4",
           .model_types = kGemma4Types,
           .causal_class = "Gemma4ForCausalLM",
           .activation_field = "hidden_activation",
           .activation = Activation::kGeluTanh,
           .norms = LayerNorms::kAround,
           .head_norms = true,
           .value_norms = true,
           .scaled_embedding = true,
           .scaled_scores = false,
           .layer_scalars = true,
           .last_layer_is_full = true,
           .windows = Windows::kByLayerType,
           .experts = Experts::kBesideMlp,
           .text_ends = kGemma4Ends,
           .defaults = {.head_dim = 256, .tie_word_embeddings = true}},
    Family{.architecture = Architecture::kQwen3,
           .name = "qwen3",
           .model_types = kQwen3Types,
           .causal_class = "Qwen3ForCausalLM",
           .activation_field = "hidden_act",
           .head_norms = true,
           .text_ends = kQwenEnds,
           .defaults = {.head_dim = 128}},
    // Llama 2 and 3, SmolLM2, TinyLlama, Mistral.
    Family{.architecture = Architecture::kLlama,
           .name = "llama",
           .model_types = kLlamaTypes,
           .causal_class = "LlamaForCausalLM",
           .activation_field = "hidden_act",
           .neighbour_pairs = true,
           .biases = Biases::kByField,
           .windows = Windows::kAllLayers,
           .text_ends = kLlamaEnds,
           .defaults = {.max_position_embeddings = 2048, .rope_theta = 1e4}},
    Family{.architecture = Architecture::kGemma3,
           .name = "gemma3",
           .model_types = kGemma3Types,
           .causal_class = "Gemma3ForCausalLM",
           .activation_field = "hidden_activation",
           .activation = Activation::kGeluTanh,
           .norms = LayerNorms::kAround,
           .head_norms = true,
           .scaled_embedding = true,
           .norms_less_one = true,
           .windows = Windows::kByLayerType,
           .text_ends = kGemma3Ends,
           .defaults = {.vocab_size = 262208,
                        .num_attention_heads = 8,
                        .num_key_value_heads = 4,
                        .head_dim = 256,
                        .max_position_embeddings = 131072,
                        .sliding_window = 4096,
                        .sliding_window_pattern = 6,
                        .rope_theta = 1e6,
                        .rope_local_base_freq = 1e4,
                        .tie_word_embeddings = true}},
    Family{.architecture = Architecture::kQwen2,
           .name = "qwen2",
           .model_types = kQwen2Types,
           .causal_class = "Qwen2ForCausalLM",
           .activation_field = "hidden_act",
           .biases = Biases::kQkv,
           .text_ends = kQwenEnds,
           .defaults = {.max_position_embeddings = 32768, .rope_theta = 1e4}},
    Family{.architecture = Architecture::kQwen3Moe,
           .name = "qwen3moe",
           .model_types = kQwen3MoeTypes,
           .causal_class = "Qwen3MoeForCausalLM",
           .activation_field = "hidden_act",
           .head_norms = true,
           .experts = Experts::kInsteadOfMlp,
           .text_ends = kQwenEnds,
           .defaults = {.max_position_embeddings = 32768, .rope_theta = 1e4}},
};

}  // namespace

std::span<const Family> families() {
  return kFamilies;
}

const Family& family_of(Architecture architecture) {
  const auto index = static_cast<std::size_t>(architecture);
  KAKEYA_CHECK(index < kFamilies.size() && kFamilies[index].architecture == architecture);
  return kFamilies[index];
}

const Family* find_family(std::string_view model_type) {
  for (const Family& family : kFamilies) {
    if (std::ranges::count(family.model_types, model_type) > 0) return &family;
  }
  return nullptr;
}

const Family* find_gguf_family(std::string_view architecture) {
  const auto found = std::ranges::find(kFamilies, architecture, &Family::name);
  return found == kFamilies.end() ? nullptr : &*found;
}

std::string known_model_types() {
  std::vector<std::string_view> names;
  for (const Family& family : kFamilies) {
    names.insert(names.end(), family.model_types.begin(), family.model_types.end());
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace kakeya
