#include "formats/speculators_config.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "formats/model_config_parts.h"
#include "formats/printable.h"

namespace kakeya {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kKind = "speculators_model_type";

// Fields that are called alike in both formats: of DFlash, and of DFlash 2 besides.
constexpr std::array<std::string_view, 9> kSameFields = {
    "block_size",           "mask_token_id",   "output_multiplier", "final_logit_softcapping",
    "conv_kernel_size",     "conv_group_size", "selector_rank",     "selector_top_k",
    "input_embedding_scale"};

// Fields that say who made the file and how it is served, or are read by name below.
constexpr std::array<std::string_view, 16> kReadOrHarmless = {"architectures",
                                                              "auto_map",
                                                              "dtype",
                                                              "torch_dtype",
                                                              "transformers_version",
                                                              "speculators_version",
                                                              "speculators_config",
                                                              "transformer_layer_config",
                                                              "aux_hidden_state_layer_ids",
                                                              "sliding_window_non_causal",
                                                              "draft_vocab_size",
                                                              "tie_word_embeddings",
                                                              "quantization",
                                                              "quantization_config",
                                                              kKind,
                                                              "sample_from_anchor"};

Status reject_other_fields(const JsonFields& root) {
  for (const std::string_view key : root.keys()) {
    const auto is = [&](std::string_view known) { return key == known; };
    const bool known =
        std::ranges::any_of(kSameFields, is) || std::ranges::any_of(kReadOrHarmless, is);
    if (known || !root.has(key)) continue;
    return error(StatusCode::kUnimplemented, "{}: what it stands for is not known", printable(key));
  }
  KAKEYA_ASSIGN_OR_RETURN(const bool anchors, root.boolean_or("sample_from_anchor", false));
  if (!anchors) return {};
  return error(StatusCode::kUnimplemented, "sample_from_anchor: expected false, got true");
}

Json json_of(simdjson::dom::element value) {
  return Json::parse(simdjson::minify(value));
}

}  // namespace

bool is_speculators_config(const JsonFields& root) {
  return root.has(kKind);
}

Result<std::string> config_of_speculators(const JsonFields& root) {
  KAKEYA_ASSIGN_OR_RETURN(const std::string kind, root.text_or(kKind, ""));
  if (kind != "dflash" && kind != "dflash2") {
    return error(StatusCode::kUnimplemented, "{}: expected \"dflash\" or \"dflash2\", got \"{}\"",
                 kKind, printable(kind));
  }
  KAKEYA_TRY(reject_other_fields(root));
  const auto layers = root.find("transformer_layer_config");
  if (!layers || !layers->is_object()) {
    return invalid_argument("transformer_layer_config: expected an object, got {}",
                            layers ? describe(*layers) : "nothing");
  }
  Json config = json_of(*layers);
  config["architectures"] = {kind == "dflash2" ? "DFlash2DraftModel" : "DFlashDraftModel"};
  if (const auto size = root.find("draft_vocab_size")) config["draft_vocab_size"] = json_of(*size);
  KAKEYA_ASSIGN_OR_RETURN(const bool both_ways, root.boolean_or("sliding_window_non_causal", true));
  if (both_ways) config["is_causal"] = false;
  for (const char* key : {"quantization", "quantization_config"}) {
    if (const auto value = root.find(key)) config[key] = json_of(*value);
  }
  Json& dflash = config["dflash_config"] = Json::object();
  for (const std::string_view key : kSameFields) {
    if (const auto value = root.find(key)) dflash[std::string(key)] = json_of(*value);
  }
  KAKEYA_ASSIGN_OR_RETURN(std::vector<std::int64_t> taps,
                          root.integers("aux_hidden_state_layer_ids", {1, kLayersRange.high}));
  for (std::int64_t& tap : taps) --tap;
  dflash["target_layer_ids"] = taps;
  return config.dump();
}

}  // namespace kakeya
