#include "projection_writer.h"

#include <nlohmann/json.hpp>
#include <span>

#include "base/atomic_file.h"
#include "base/status.h"
#include "formats/safetensors_writer.h"
#include "tensor/tensor_view.h"

namespace kakeya::train {

ProjectionConfig make_projection_config(const ModelConfig& target,
                                        const DrafterConfig& drafter,
                                        ProjectionFeatures features,
                                        std::int64_t rank) {
  const ModelConfig& layers = drafter.layers;
  ProjectionConfig config;
  config.features = features;
  config.rank = rank;
  config.drafter_num_layers = layers.num_hidden_layers;
  config.drafter_num_kv_heads = layers.layer_kv_heads(0);
  config.drafter_head_dim = layers.layer_head_dim(0);
  for (std::int64_t l = 0; l < target.num_hidden_layers; ++l) {
    config.layer_kv_heads.push_back(target.layer_kv_heads(l));
    config.layer_head_dims.push_back(target.layer_head_dim(l));
  }
  config.feature_width = config.input_width();
  if (features == ProjectionFeatures::kAux) {
    config.feature_width =
        static_cast<std::int64_t>(drafter.target_layer_ids.size()) * target.hidden_size;
  }
  return config;
}

ProjectionWeights zero_weights(const ProjectionConfig& config) {
  ProjectionWeights weights;
  for (const TensorSpec& spec : expected_tensors(config)) {
    weights.emplace_back(static_cast<std::size_t>(num_elements(spec.shape)), 0.0F);
  }
  return weights;
}

Status write_projection(const std::string& folder,
                        const ProjectionConfig& config,
                        const std::vector<std::int64_t>& fitted,
                        const ProjectionWeights& weights) {
  nlohmann::ordered_json json = {{"features", projection_features_name(config.features)},
                                 {"causal_features", true},
                                 {"drafter_num_layers", config.drafter_num_layers},
                                 {"drafter_num_kv_heads", config.drafter_num_kv_heads},
                                 {"drafter_head_dim", config.drafter_head_dim},
                                 {"verifier_num_layers", config.num_layers()},
                                 {"rank", config.rank},
                                 {"verifier_layer_kv_heads", config.layer_kv_heads},
                                 {"verifier_layer_head_dims", config.layer_head_dims},
                                 {"feature_width", config.feature_width},
                                 {"fitted_layers", fitted}};
  if (config.one_code) json["codes"] = "one";
  if (config.code_format) json["code_format"] = kv_format_name(*config.code_format);
  KAKEYA_TRY(write_file(folder + "/f_theta_config.json", json.dump(1) + "\n"));
  std::vector<SafetensorsLayout> layouts;
  for (const TensorSpec& spec : expected_tensors(config)) {
    layouts.push_back({.name = spec.name, .dtype = DType::kF32, .shape = spec.shape});
  }
  KAKEYA_ASSIGN_OR_RETURN(auto writer,
                          SafetensorsWriter::create(folder + "/model.safetensors", layouts, {}));
  for (std::size_t i = 0; i < weights.size(); ++i) {
    KAKEYA_TRY(writer.write(i, std::as_bytes(std::span(weights[i]))));
  }
  return writer.commit();
}

Status write_file(const std::string& path, std::string_view text) {
  KAKEYA_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path, FileAccess::kUmask));
  KAKEYA_TRY(file.write_at(0, std::as_bytes(std::span(text.data(), text.size()))));
  return file.commit();
}

}  // namespace kakeya::train
