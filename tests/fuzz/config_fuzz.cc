// config.json and generation_config.json from anybody: no input crashes, and a model configuration
// that is accepted keeps its promises.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "formats/model_config.h"
#include "formats/model_tensors.h"

namespace {

void check_promises(const kakeya::ModelConfig& config) {
  KAKEYA_CHECK(static_cast<std::int64_t>(config.layer_types.size()) == config.num_hidden_layers);
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::int64_t source = config.kv_source_layer(layer);
    KAKEYA_CHECK(source >= 0 && source <= layer && config.owns_kv(source));
    KAKEYA_CHECK(config.is_sliding(source) == config.is_sliding(layer));
    KAKEYA_CHECK(config.num_attention_heads % config.layer_kv_heads(layer) == 0);
    KAKEYA_CHECK(config.layer_head_dim(layer) % 2 == 0);
    KAKEYA_CHECK(!config.is_sliding(layer) || config.sliding_window > 0);
  }
  KAKEYA_CHECK(config.top_k_experts <= config.num_experts);
  for (const kakeya::TokenId id : config.eos_token_ids) {
    KAKEYA_CHECK(id >= 0 && id < config.vocab_size);
  }
  const auto count = kakeya::parameter_count(config);
  KAKEYA_CHECK(count.has_value() && count->total > 0);
  KAKEYA_CHECK(count->touched_per_token <= count->total);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = kakeya::parse_model_config(text);
  if (config) {
    check_promises(*config);
  } else {
    KAKEYA_CHECK(config.error().message().find('\n') == std::string::npos);
  }
  (void)kakeya::parse_generation_config(text);
  return 0;
}
