// f_theta_config.json of a projection: a linear map from features of a position to the target's raw
// keys and values, through a code of low rank. Which features those are, the config says. Tensor
// names are those of the published files.
//
//   code_k = encoder_k features_k      raw keys of layer l   = decoders_k.l code_k
//   code_v = encoder_v features_v      raw values of layer l = decoders_v.l code_v
//
// With one code for both, from the same features:
//
//   code   = encoder features
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/drafter_config.h"
#include "formats/model_config.h"
#include "formats/model_tensors.h"
#include "kakeya/status.h"
#include "tensor/kv_format.h"

namespace kakeya {

// The features of a position that a projection sees. The widths add up over the drafter's layers,
// or over its taps.
enum class ProjectionFeatures : std::uint8_t {
  kContext,  // outputs of k_proj and v_proj of a drafter's layers on its context features
  kAux,      // the tapped layer outputs of the target, for keys and values alike
};

// "context", "aux".
std::string_view projection_features_name(ProjectionFeatures features);

struct ProjectionConfig {
  ProjectionFeatures features = ProjectionFeatures::kAux;
  bool one_code = false;  // of keys and values; kAux alone
  // How codes are stored where the caller does not say: what the projection was made for.
  std::optional<KvFormat> code_format = {};
  std::int64_t rank = 0;
  std::int64_t feature_width = 0;  // inputs of each encoder; 0: follows from the drafter
  std::int64_t drafter_num_layers = 0;
  std::int64_t drafter_num_kv_heads = 0;
  std::int64_t drafter_head_dim = 0;
  std::vector<std::int64_t> layer_kv_heads;   // of each layer of the target
  std::vector<std::int64_t> layer_head_dims;  // the same

  static constexpr std::int64_t kMaxRank = 4096;

  std::int64_t num_layers() const { return static_cast<std::int64_t>(layer_kv_heads.size()); }
  std::int64_t layer_width(std::int64_t layer) const {
    const auto l = static_cast<std::size_t>(layer);
    return layer_kv_heads[l] * layer_head_dims[l];
  }
  // feature_width, or what the features of this projection are wide.
  std::int64_t input_width() const;
};

// Errors: kInvalidArgument for malformed JSON or an impossible value (which field, expected, got),
// and for features of bare tokens, which were removed; older files mean those where they name none.
Result<ProjectionConfig> parse_projection_config(std::string_view json);

// Reads DIR/f_theta_config.json. Errors as above and kNotFound, with the path.
Result<ProjectionConfig> load_projection_config(const std::string& dir);

// Every tensor of the projection by its name.
std::vector<TensorSpec> expected_tensors(const ProjectionConfig& config);

// Checks that the projection fits both: layers, heads and sizes. Errors: kInvalidArgument, naming
// the field and both sides' values.
Status check_projection_fits(const ProjectionConfig& projection,
                             const ModelConfig& target,
                             const DrafterConfig& drafter);

}  // namespace kakeya
