#include "drafter_weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

#include "base/random.h"
#include "base/status.h"
#include "formats/safetensors_writer.h"
#include "model/checkpoint_source.h"

namespace kakeya::train {
namespace {

bool ends_with(std::string_view name, std::string_view end) {
  return name.size() >= end.size() && name.substr(name.size() - end.size()) == end;
}

// To the nearest, ties to even; NaN stays NaN.
std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

std::vector<TensorSpec> trained_tensors(const DrafterConfig& config) {
  std::vector<TensorSpec> specs = expected_tensors(config);
  std::erase_if(specs,
                [](const TensorSpec& spec) { return spec.presence == TensorPresence::kRedundant; });
  return specs;
}

}  // namespace

Result<DrafterTensor> read_f32(TensorSource& source, const std::string& name) {
  KAKEYA_TRY(source.check(name));
  KAKEYA_ASSIGN_OR_RETURN(const TensorView view, source.tensor(name));
  KAKEYA_ASSIGN_OR_RETURN(std::vector<float> values, to_f32(view));
  return DrafterTensor{.name = name, .shape = view.shape, .values = std::move(values)};
}

Result<DrafterWeights> read_drafter_weights(const std::string& dir, const DrafterConfig& config) {
  const std::vector<TensorSpec> wanted = expected_tensors(config);
  KAKEYA_ASSIGN_OR_RETURN(const auto source, CheckpointSource::open(dir, wanted));
  DrafterWeights weights;
  for (const TensorSpec& spec : trained_tensors(config)) {
    KAKEYA_ASSIGN_OR_RETURN(DrafterTensor tensor, read_f32(*source, spec.name));
    weights.push_back(std::move(tensor));
  }
  return weights;
}

DrafterWeights random_drafter_weights(const DrafterConfig& config,
                                      std::uint64_t seed,
                                      float last_norm) {
  SequenceRng rng(seed ^ 0x6b616b657961ULL);
  const double branches = 2.0 * static_cast<double>(config.layers.num_hidden_layers);
  DrafterWeights weights;
  for (const TensorSpec& spec : trained_tensors(config)) {
    DrafterTensor tensor{.name = spec.name, .shape = spec.shape, .values = {}};
    tensor.values.assign(static_cast<std::size_t>(num_elements(spec.shape)),
                         spec.name == "norm.weight" ? last_norm : 1.0F);
    if (spec.shape.size() > 1) {
      double deviation = 1.0 / std::sqrt(static_cast<double>(spec.shape.back()));
      if (ends_with(spec.name, "o_proj.weight") || ends_with(spec.name, "down_proj.weight")) {
        deviation /= std::sqrt(branches);
      }
      const auto bound = static_cast<float>(deviation * std::sqrt(3.0));
      for (float& value : tensor.values) value = bound * rng.symmetric();
    }
    weights.push_back(std::move(tensor));
  }
  return weights;
}

Status write_drafter_weights(const std::string& dir, const DrafterWeights& weights) {
  std::vector<SafetensorsLayout> layouts;
  for (const DrafterTensor& tensor : weights) {
    layouts.push_back({.name = tensor.name, .dtype = DType::kBF16, .shape = tensor.shape});
  }
  KAKEYA_ASSIGN_OR_RETURN(auto writer, SafetensorsWriter::create(dir + "/model.safetensors",
                                                                 layouts, {{"format", "pt"}}));
  std::vector<std::uint16_t> rounded;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    rounded.resize(weights[i].values.size());
    std::ranges::transform(weights[i].values, rounded.begin(), to_bf16);
    KAKEYA_TRY(writer.write(i, std::as_bytes(std::span(rounded))));
  }
  return writer.commit();
}

}  // namespace kakeya::train
