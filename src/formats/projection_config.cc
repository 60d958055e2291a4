#include "formats/projection_config.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/status.h"
#include "formats/json_document.h"
#include "formats/model_config_parts.h"
#include "formats/printable.h"

namespace kakeya {
namespace {

constexpr IntegerRange kHeadRange = {1, 4096};  // heads, and elements of one

struct NamedFeatures {
  ProjectionFeatures features;
  std::string_view name;
};
constexpr std::array kFeatures = {NamedFeatures{ProjectionFeatures::kContext, "context"},
                                  NamedFeatures{ProjectionFeatures::kAux, "aux"}};

Result<ProjectionFeatures> read_features(const JsonFields& root) {
  // Older files name none.
  KAKEYA_ASSIGN_OR_RETURN(const std::string name, root.text_or("features", "token"));
  for (const NamedFeatures& known : kFeatures) {
    if (known.name == name) return known.features;
  }
  if (name == "token") {
    return invalid_argument(
        "features: expected context or aux, got {}: token features were removed, the others lose "
        "less in fewer bytes",
        root.has("features") ? "token" : "none, which means token");
  }
  return invalid_argument("features: expected context or aux, got {}", printable(name));
}

// "codes": "one" or "two"; absent: two.
Result<bool> read_one_code(const JsonFields& root, ProjectionFeatures features) {
  KAKEYA_ASSIGN_OR_RETURN(const std::string codes, root.text_or("codes", "two"));
  if (codes == "two") return false;
  if (codes != "one")
    return invalid_argument("codes: expected one or two, got {}", printable(codes));
  if (features == ProjectionFeatures::kAux) return true;
  return invalid_argument(
      "codes: expected two, since keys and values have {} features of their "
      "own, got one",
      projection_features_name(features));
}

// "code_format": a format that has vectors of `rank` elements; absent: none.
Result<std::optional<KvFormat>> read_code_format(const JsonFields& root, std::int64_t rank) {
  if (!root.has("code_format")) return std::optional<KvFormat>();
  KAKEYA_ASSIGN_OR_RETURN(const std::string name, root.text_or("code_format", ""));
  const std::string removed = removed_kv_type_refusal(name);
  if (!removed.empty()) return invalid_argument("code_format: {}", removed);
  const std::optional<KvFormat> format = parse_kv_format(name);
  if (format && kv_format_supports(*format, rank)) return format;
  return invalid_argument(
      "code_format: expected a way to store keys that has codes of {} elements, "
      "got {}",
      rank, printable(name));
}

// A list with one entry for each layer; absent: `fallback` for all.
Result<std::vector<std::int64_t>> read_layers(const JsonFields& root,
                                              std::string_view key,
                                              std::string_view fallback,
                                              std::int64_t layers) {
  if (!root.has(key)) {
    KAKEYA_ASSIGN_OR_RETURN(const std::int64_t value, root.integer(fallback, kHeadRange));
    return std::vector<std::int64_t>(static_cast<std::size_t>(layers), value);
  }
  KAKEYA_ASSIGN_OR_RETURN(std::vector<std::int64_t> values, root.integers(key, kHeadRange));
  if (static_cast<std::int64_t>(values.size()) != layers) {
    return invalid_argument("{}: expected {} numbers, one a layer, got {}", key, layers,
                            values.size());
  }
  return values;
}

Result<ProjectionConfig> parse_projection_root(const JsonFields& root) {
  ProjectionConfig config;
  KAKEYA_ASSIGN_OR_RETURN(config.features, read_features(root));
  KAKEYA_ASSIGN_OR_RETURN(const bool causal, root.boolean_or("causal_features", true));
  if (!causal) {
    return invalid_argument("causal_features: expected true, as {} features always are, got false",
                            projection_features_name(config.features));
  }
  KAKEYA_ASSIGN_OR_RETURN(config.rank, root.integer("rank", {1, ProjectionConfig::kMaxRank}));
  KAKEYA_ASSIGN_OR_RETURN(config.one_code, read_one_code(root, config.features));
  KAKEYA_ASSIGN_OR_RETURN(config.code_format, read_code_format(root, config.rank));
  KAKEYA_ASSIGN_OR_RETURN(config.feature_width, root.integer_or("feature_width", 0, kWidthRange));
  KAKEYA_ASSIGN_OR_RETURN(config.drafter_num_layers,
                          root.integer("drafter_num_layers", kLayersRange));
  KAKEYA_ASSIGN_OR_RETURN(config.drafter_num_kv_heads,
                          root.integer("drafter_num_kv_heads", kHeadRange));
  KAKEYA_ASSIGN_OR_RETURN(config.drafter_head_dim, root.integer("drafter_head_dim", kHeadRange));
  KAKEYA_ASSIGN_OR_RETURN(const std::int64_t layers,
                          root.integer("verifier_num_layers", kLayersRange));
  KAKEYA_ASSIGN_OR_RETURN(config.layer_kv_heads, read_layers(root, "verifier_layer_kv_heads",
                                                             "verifier_num_kv_heads", layers));
  KAKEYA_ASSIGN_OR_RETURN(config.layer_head_dims, read_layers(root, "verifier_layer_head_dims",
                                                              "verifier_head_dim", layers));
  if (config.features == ProjectionFeatures::kAux && config.feature_width == 0) {
    return invalid_argument("feature_width: expected the width of the layer outputs, got none");
  }
  const std::int64_t width = config.input_width();
  if (config.features != ProjectionFeatures::kAux && config.feature_width != 0) {
    const std::int64_t expected =
        config.drafter_num_layers * config.drafter_num_kv_heads * config.drafter_head_dim;
    if (width != expected) {
      return invalid_argument("feature_width: expected {} as the drafter's sizes say, got {}",
                              expected, width);
    }
  }
  KAKEYA_TRY(total_parameters(expected_tensors(config)));
  return config;
}

}  // namespace

std::string_view projection_features_name(ProjectionFeatures features) {
  for (const NamedFeatures& known : kFeatures) {
    if (known.features == features) return known.name;
  }
  return "?";
}

std::int64_t ProjectionConfig::input_width() const {
  if (feature_width != 0) return feature_width;
  return drafter_num_layers * drafter_num_kv_heads * drafter_head_dim;
}

Result<ProjectionConfig> parse_projection_config(std::string_view json) {
  KAKEYA_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::parse(json));
  KAKEYA_ASSIGN_OR_RETURN(const JsonFields root, root_fields(document));
  return parse_projection_root(root);
}

Result<ProjectionConfig> load_projection_config(const std::string& dir) {
  const std::string path = dir + "/f_theta_config.json";
  KAKEYA_ASSIGN_OR_RETURN(const std::string text, read_config_file(path));
  auto config = parse_projection_config(text);
  if (!config) return Unexpected(config.error().with_context(path));
  return config;
}

std::vector<TensorSpec> expected_tensors(const ProjectionConfig& config) {
  std::vector<TensorSpec> specs;
  const std::vector<std::int64_t> encoder = {config.rank, config.input_width()};
  if (config.one_code) specs.push_back({.name = "encoder.weight", .shape = encoder});
  for (const char* side : {"k", "v"}) {
    if (!config.one_code) {
      specs.push_back({.name = fmt::format("encoder_{}.weight", side), .shape = encoder});
    }
    for (std::int64_t l = 0; l < config.num_layers(); ++l) {
      specs.push_back({.name = fmt::format("decoders_{}.{}.weight", side, l),
                       .shape = {config.layer_width(l), config.rank}});
    }
  }
  return specs;
}

Status check_projection_fits(const ProjectionConfig& projection,
                             const ModelConfig& target,
                             const DrafterConfig& drafter) {
  const auto same = [](std::string_view field, std::int64_t own, std::string_view whose,
                       std::int64_t other) -> Status {
    if (own == other) return {};
    return invalid_argument("projection: {} is {} but that of the {} is {}", field, own, whose,
                            other);
  };
  const ModelConfig& layers = drafter.layers;
  KAKEYA_TRY(
      same("verifier_num_layers", projection.num_layers(), "model", target.num_hidden_layers));
  for (std::int64_t l = 0; l < target.num_hidden_layers; ++l) {
    const auto i = static_cast<std::size_t>(l);
    KAKEYA_TRY(same(fmt::format("verifier_layer_kv_heads[{}]", l), projection.layer_kv_heads[i],
                    "model", target.layer_kv_heads(l)));
    KAKEYA_TRY(same(fmt::format("verifier_layer_head_dims[{}]", l), projection.layer_head_dims[i],
                    "model", target.layer_head_dim(l)));
  }
  KAKEYA_TRY(same("drafter_num_layers", projection.drafter_num_layers, "drafter",
                  layers.num_hidden_layers));
  KAKEYA_TRY(same("drafter_num_kv_heads", projection.drafter_num_kv_heads, "drafter",
                  layers.layer_kv_heads(0)));
  KAKEYA_TRY(
      same("drafter_head_dim", projection.drafter_head_dim, "drafter", layers.layer_head_dim(0)));
  if (projection.features != ProjectionFeatures::kAux) return {};
  const auto taps = static_cast<std::int64_t>(drafter.target_layer_ids.size());
  return same("feature_width", projection.feature_width, "drafter's taps",
              taps * target.hidden_size);
}

}  // namespace kakeya
