#include "drafter_config_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/status.h"
#include "formats/model_config_parts.h"
#include "formats/spread_taps.h"

namespace kakeya::train {
namespace {

std::vector<std::int64_t> usual_taps(std::int64_t target_layers) {
  std::int64_t count = std::min<std::int64_t>(6, std::max<std::int64_t>(1, target_layers / 2));
  while (count > 1 && !has_default_taps(target_layers, count)) --count;
  return default_taps(target_layers, count);
}

}  // namespace

Result<std::string> new_drafter_config(const ModelConfig& target,
                                       const NewDrafter& drafter,
                                       float embed_scale,
                                       TokenId mask_id) {
  constexpr std::int64_t kMostLayers = 64;
  const auto& [layers, block_size, chosen_taps] = drafter;
  if (layers < 1 || layers > kMostLayers) {
    return invalid_argument("layers: expected 1 to {}, got {}", kMostLayers, layers);
  }
  if (block_size < DrafterConfig::kMinBlockSize || block_size > DrafterConfig::kMaxBlockSize) {
    return invalid_argument("block: expected {} to {}, got {}", DrafterConfig::kMinBlockSize,
                            DrafterConfig::kMaxBlockSize, block_size);
  }
  const std::vector<std::int64_t> taps =
      chosen_taps.empty() ? usual_taps(target.num_hidden_layers) : chosen_taps;
  const nlohmann::ordered_json json = {
      {"architectures", {"DFlashDraftModel"}},
      {"model_type", "qwen3"},
      {"attention_bias", false},
      {"block_size", block_size},
      {"dflash_config",
       {{"mask_token_id", mask_id},
        {"target_layer_ids", taps},
        {"causal", false},
        {"input_embedding_scale", embed_scale}}},
      {"dtype", "bfloat16"},
      {"final_logit_softcapping", target.final_logit_softcapping > 0.0F
                                      ? nlohmann::ordered_json(target.final_logit_softcapping)
                                      : nlohmann::ordered_json()},
      {"head_dim", target.head_dim},
      {"hidden_act", "silu"},
      {"hidden_size", target.hidden_size},
      {"intermediate_size", 2 * target.hidden_size},
      {"is_causal", false},
      {"input_embedding_scale", embed_scale},
      {"layer_types", std::vector<std::string>(static_cast<std::size_t>(layers), "full_attention")},
      {"max_position_embeddings", target.max_position_embeddings},
      {"num_attention_heads", target.num_attention_heads},
      {"num_hidden_layers", layers},
      {"num_key_value_heads", target.num_key_value_heads},
      {"num_target_layers", target.num_hidden_layers},
      {"rms_norm_eps", 1e-6},
      {"rope_scaling", nullptr},
      {"rope_theta", 1000000},
      {"tie_word_embeddings", false},
      {"vocab_size", target.vocab_size}};
  return json.dump(2) + "\n";
}

Result<std::string> read_drafter_config_text(const std::string& dir, std::int64_t block_size) {
  KAKEYA_ASSIGN_OR_RETURN(const DrafterConfig drafter, load_drafter_config(dir));
  const std::string path = dir + "/config.json";
  if (drafter.has_selector()) {
    return error(StatusCode::kUnimplemented,
                 "{}: expected a DFlash drafter to begin with, got one of DFlash 2, whose "
                 "convolutions and selector are not trained here",
                 path);
  }
  auto text = read_config_file(path);
  if (!text) {
    return error(StatusCode::kUnimplemented,
                 "{}: expected a drafter's folder to begin with, got another (GGUF files can be "
                 "converted: kakeya convert)",
                 dir);
  }
  if (block_size == 0) return text;
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(*text, nullptr, false);
  if (!json.is_object()) return invalid_argument("{}: expected a JSON object", path);
  json["block_size"] = block_size;
  if (json.contains("dflash_config") && json["dflash_config"].contains("block_size")) {
    json["dflash_config"]["block_size"] = block_size;
  }
  return json.dump(2) + "\n";
}

}  // namespace kakeya::train
