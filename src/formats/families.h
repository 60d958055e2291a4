// The families of networks that can be run: a row of facts for each, which readers of
// configurations and tensors, the converter, reports and decoders ask. A family whose layers are
// like those of another one is a value of Architecture and a row here.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "formats/model_config.h"

namespace kakeya {

// Where the norms of a layer stand.
enum class LayerNorms : std::uint8_t {
  kBefore,  // of what attention and MLP read: the layer of Llama
  kAround   // and of what they give: the layer of Gemma
};

// Which projections have a bias.
enum class Biases : std::uint8_t {
  kNone,
  kByField,  // attention_bias: q, k, v and o; mlp_bias: gate, up and down
  kQkv       // always q, k and v
};

enum class Windows : std::uint8_t {
  kNone,         // a configuration that asks for windows is refused
  kByLayerType,  // layer_types, or every so-manieth layer is full
  kAllLayers     // all layers slide where sliding_window is a number
};

enum class Experts : std::uint8_t {
  kNone,
  kBesideMlp,    // Gemma 4: enable_moe_block
  kInsteadOfMlp  // of every layer
};

// The values that stand for fields which a configuration leaves out, as in the published
// configuration classes; 0: the field must be there.
struct FamilyDefaults {
  std::int64_t vocab_size = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;  // 0: as many as query heads
  std::int64_t head_dim = 0;             // 0: hidden_size / num_attention_heads
  std::int64_t max_position_embeddings = 0;
  std::int64_t sliding_window = 0;
  std::int64_t sliding_window_pattern = 0;
  double rope_theta = 0.0;
  double rope_local_base_freq = 0.0;  // of sliding layers; 0: rope_theta
  bool tie_word_embeddings = false;
};

struct Family {
  Architecture architecture;
  std::string_view name;                          // general.architecture of GGUF files
  std::span<const std::string_view> model_types;  // of config.json; the first is written
  std::string_view causal_class;                  // architectures of config.json
  std::string_view activation_field;              // "hidden_act"
  Activation activation = Activation::kSilu;
  LayerNorms norms = LayerNorms::kBefore;
  bool head_norms = false;        // of queries and keys
  bool value_norms = false;       // of values, without weight
  bool scaled_embedding = false;  // by sqrt(D)
  bool scaled_scores = true;      // by head_dim^-1/2 or query_pre_attn_scalar^-1/2
  bool layer_scalars = false;
  bool last_layer_is_full = false;
  // Norms of safetensors hold weight - 1, those of GGUF files the weight.
  bool norms_less_one = false;
  // GGUF files store the pair (i, i + E / 2) of a head's rows of q and k as neighbours.
  bool neighbour_pairs = false;
  Biases biases = Biases::kNone;
  Windows windows = Windows::kNone;
  Experts experts = Experts::kNone;
  // Texts of the tokens at which a turn or a text ends.
  std::span<const std::string_view> text_ends = {};
  FamilyDefaults defaults = {};
};

std::span<const Family> families();
const Family& family_of(Architecture architecture);
// By model_type of config.json; nullptr if there is none.
const Family* find_family(std::string_view model_type);
// By general.architecture of a GGUF file; nullptr if there is none.
const Family* find_gguf_family(std::string_view architecture);

// "gemma4, gemma4_text, ..., qwen3": what config.json may say.
std::string known_model_types();

}  // namespace kakeya
