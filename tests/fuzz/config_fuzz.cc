// config.json, generation_config.json and f_theta_config.json from anybody: no input crashes, and a
// configuration of a model, a drafter or a projection that is accepted keeps its promises.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "formats/drafter_config.h"
#include "formats/model_config.h"
#include "formats/model_tensors.h"
#include "formats/named_shapes.h"
#include "formats/projection_config.h"

namespace {

void check_layers(const kakeya::ModelConfig& config) {
  KAKEYA_CHECK(static_cast<std::int64_t>(config.layer_types.size()) == config.num_hidden_layers);
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::int64_t source = config.kv_source_layer(layer);
    KAKEYA_CHECK(source >= 0 && source <= layer && config.owns_kv(source));
    KAKEYA_CHECK(config.is_sliding(source) == config.is_sliding(layer));
    KAKEYA_CHECK(config.num_attention_heads % config.layer_kv_heads(layer) == 0);
    KAKEYA_CHECK(config.layer_head_dim(layer) % 2 == 0);
    KAKEYA_CHECK(!config.is_sliding(layer) || config.sliding_window > 0);
  }
}

void check_promises(const kakeya::ModelConfig& config) {
  check_layers(config);
  KAKEYA_CHECK(config.top_k_experts <= config.num_experts);
  for (const kakeya::TokenId id : config.eos_token_ids) {
    KAKEYA_CHECK(id >= 0 && id < config.vocab_size);
  }
  const auto count = kakeya::parameter_count(config);
  KAKEYA_CHECK(count.has_value() && count->total > 0);
  KAKEYA_CHECK(count->touched_per_token <= count->total);
}

void check_promises(const kakeya::DrafterConfig& drafter) {
  check_layers(drafter.layers);
  const kakeya::ModelConfig& layers = drafter.layers;
  KAKEYA_CHECK(layers.global_head_dim == layers.head_dim);
  KAKEYA_CHECK(layers.num_global_key_value_heads == layers.num_key_value_heads);
  KAKEYA_CHECK(drafter.block_size >= kakeya::DrafterConfig::kMinBlockSize);
  KAKEYA_CHECK(drafter.block_size <= kakeya::DrafterConfig::kMaxBlockSize);
  KAKEYA_CHECK(drafter.mask_token_id >= 0);
  KAKEYA_CHECK(layers.vocab_size == 0 || drafter.mask_token_id < layers.vocab_size);
  KAKEYA_CHECK(!drafter.target_layer_ids.empty());
  for (const std::int64_t layer : drafter.target_layer_ids) {
    KAKEYA_CHECK(layer >= 0);
    KAKEYA_CHECK(drafter.num_target_layers == 0 || layer < drafter.num_target_layers);
  }
  KAKEYA_CHECK(drafter.output_multiplier > 0.0F);
  KAKEYA_CHECK(drafter.has_selector() == (drafter.conv_kernel_size > 0));
  if (drafter.has_selector()) {
    KAKEYA_CHECK(drafter.layers.hidden_size % drafter.conv_group_size == 0);
    KAKEYA_CHECK(drafter.selector_top_k >= 1);
    KAKEYA_CHECK(drafter.selector_top_k < drafter.layers.vocab_size);
  }
  KAKEYA_CHECK(drafter.input_embedding_scale.value_or(1.0F) > 0.0F);
  const auto parameters = kakeya::total_parameters(kakeya::expected_tensors(drafter));
  KAKEYA_CHECK(parameters.has_value() && *parameters > 0);

  static const kakeya::ModelConfig kTarget = kakeya::named_shape("gemma4-26b-a4b", 0).value();
  const bool fits = kakeya::check_drafter_fits(drafter, kTarget).has_value();
  KAKEYA_CHECK(!fits || layers.hidden_size == kTarget.hidden_size);
}

void check_promises(const kakeya::ProjectionConfig& projection) {
  KAKEYA_CHECK(projection.rank > 0 && projection.rank <= kakeya::ProjectionConfig::kMaxRank);
  KAKEYA_CHECK(projection.input_width() > 0);
  KAKEYA_CHECK(projection.layer_kv_heads.size() == projection.layer_head_dims.size());
  const auto parameters = kakeya::total_parameters(kakeya::expected_tensors(projection));
  KAKEYA_CHECK(parameters.has_value() && *parameters > 0);
}

template <typename Config>
void check_outcome(const kakeya::Result<Config>& config) {
  if (config) {
    check_promises(*config);
  } else {
    KAKEYA_CHECK(config.error().message().find('\n') == std::string::npos);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_outcome(kakeya::parse_model_config(text));
  check_outcome(kakeya::parse_drafter_config(text));
  check_outcome(kakeya::parse_projection_config(text));
  (void)kakeya::parse_generation_config(text);
  return 0;
}
