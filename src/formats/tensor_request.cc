#include "formats/tensor_request.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "formats/gguf_config.h"
#include "formats/printable.h"
#include "formats/tensor_matcher.h"

namespace kakeya {

namespace {

bool is_weight_dtype(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kScales = ".scales";
constexpr std::string_view kBiases = ".biases";

Unexpected wrong_shape(std::string_view where, const Shape& expected, const Shape& got) {
  return invalid_argument("{}: expected shape {}, got {}", where, shape_string(expected),
                          shape_string(got));
}

// The name of what lies beside a tensor "X.weight": "X" and the suffix.
std::string beside(std::string_view weight, std::string_view suffix) {
  return std::string(weight.substr(0, weight.size() - kWeight.size())) + std::string(suffix);
}

// True if it is the scales or biases of an affine tensor, which is found by its codes.
bool belongs_to_codes(const Checkpoint& checkpoint, std::string_view name) {
  for (const std::string_view suffix : {kScales, kBiases}) {
    if (!name.ends_with(suffix)) continue;
    const std::string weight = std::string(name.substr(0, name.size() - suffix.size())) + ".weight";
    const TensorView* codes = checkpoint.find(weight);
    if (codes != nullptr && codes->dtype == DType::kU32) return true;
  }
  return false;
}

// Codes of 32-bit words with their scales and biases as a tensor of this shape. `where` names the
// tensor and its file.
Result<TensorView> affine_tensor(const Checkpoint& checkpoint,
                                 const TensorView& codes,
                                 const Shape& shape,
                                 const std::string& where) {
  const bool named = codes.name.ends_with(kWeight);
  const TensorView* scales = named ? checkpoint.find(beside(codes.name, kScales)) : nullptr;
  const TensorView* biases = named ? checkpoint.find(beside(codes.name, kBiases)) : nullptr;
  if (scales == nullptr || biases == nullptr) {
    return invalid_argument("{}: expected scales and biases beside codes, got {}", where,
                            scales == nullptr ? "no scales" : "no biases");
  }
  if (!is_weight_dtype(scales->dtype) || biases->dtype != scales->dtype) {
    return invalid_argument("{}: expected scales and biases of F32, F16 or BF16, got {} and {}",
                            where, dtype_name(scales->dtype), dtype_name(biases->dtype));
  }
  const auto fits = [&] {
    const auto same_rows = [&](const Shape& other) {
      return other.size() == shape.size() &&
             std::equal(shape.begin(), shape.end() - 1, other.begin());
    };
    return shape.size() >= 2 && shape.back() > 0 && same_rows(codes.shape) &&
           same_rows(scales->shape) && scales->shape == biases->shape && scales->shape.back() > 0 &&
           codes.shape.back() <= shape.back();
  };
  AffineGroups groups = {.dtype = scales->dtype, .scales = scales->data, .biases = biases->data};
  if (fits()) {
    const std::int64_t columns = shape.back();
    const std::int64_t bits = codes.shape.back() * 32 / columns;
    const std::int64_t group_size = columns / scales->shape.back();
    groups.format = {.bits = static_cast<int>(bits), .group_size = static_cast<int>(group_size)};
    const bool exact = codes.shape.back() * 32 == bits * columns &&
                       scales->shape.back() * group_size == columns && group_size <= columns;
    if (exact && affine_format_exists(groups.format)) {
      return TensorView{
          .data = codes.data, .shape = shape, .name = codes.name, .quantization = groups};
    }
  }
  return invalid_argument("{}: codes {}, scales {} and biases {} are no affine form of {}", where,
                          shape_string(codes.shape), shape_string(scales->shape),
                          shape_string(biases->shape), shape_string(shape));
}

// The name by which a tensor is wanted: without prefix, and experts of MLX checkpoints, which are
// not fused, as "layers.N.experts.gate_proj".
std::string canonical_name(std::string_view name) {
  // Beside an MLP, and in its place.
  constexpr std::array<std::string_view, 2> kSplitExperts = {".experts.switch_glu.",
                                                             ".mlp.switch_mlp."};
  constexpr std::array<std::string_view, 2> kNames = {".experts.", ".mlp.experts."};
  std::string result(strip_model_prefix(name));
  // Writers of drafters say the table of an embedding, or the parameter itself.
  if (result.ends_with("_codebook")) return result + std::string(kWeight);
  if (!result.ends_with(kWeight)) return result;
  for (std::size_t i = 0; i < kSplitExperts.size(); ++i) {
    const std::size_t at = result.find(kSplitExperts[i]);
    if (at == std::string::npos) continue;
    result.erase(result.size() - kWeight.size());
    return result.replace(at, kSplitExperts[i].size(), kNames[i]);
  }
  return result;
}

// Tells tensors of the vision or audio part, which some writers put into the same file.
bool is_other_modality_of_gguf(std::string_view name) {
  return name.starts_with("v.") || name.starts_with("a.") || name.starts_with("mm.");
}

// The tensor of a checkpoint as it is wanted.
Result<TensorView> fit(const Checkpoint& checkpoint,
                       const TensorView& tensor,
                       const TensorSpec& spec,
                       const std::string& file) {
  const std::string where = fmt::format("{} in {}", printable(tensor.name), file);
  if (tensor.dtype == DType::kU32) return affine_tensor(checkpoint, tensor, spec.shape, where);
  if (tensor.shape != spec.shape) return wrong_shape(where, spec.shape, tensor.shape);
  if (!is_weight_dtype(tensor.dtype)) {
    return invalid_argument("{}: expected F32, F16 or BF16, got {}", where,
                            dtype_name(tensor.dtype));
  }
  return tensor;
}

// The tensor of a GGUF file as it is wanted.
Result<TensorView> fit(const GgufTensor& tensor, const TensorSpec& spec, const std::string& file) {
  const std::string where = fmt::format("{} in {}", printable(tensor.name), file);
  if (tensor.shape != spec.shape) return wrong_shape(where, spec.shape, tensor.shape);
  TensorView view = {
      .data = tensor.data.data(), .shape = tensor.shape, .name = std::string(tensor.name)};
  if (const auto* blocks = std::get_if<QuantizedFormat>(&tensor.encoding)) {
    view.quantization = *blocks;
    return view;
  }
  view.dtype = std::get<DType>(tensor.encoding);
  if (is_weight_dtype(view.dtype)) return view;
  return invalid_argument("{}: expected F32, F16, BF16 or blocks, got {}", where,
                          gguf_encoding_name(tensor.encoding));
}

}  // namespace

const TensorView& ResolvedTensors::at(std::string_view name) const {
  const TensorView* view = find(name);
  KAKEYA_CHECK(view != nullptr);
  return *view;
}

const TensorView* ResolvedTensors::find(std::string_view name) const {
  const auto found = views_.find(name);
  return found == views_.end() ? nullptr : &found->second;
}

std::span<const TensorView> ResolvedTensors::find_matrices(std::string_view name) const {
  const auto found = matrices_.find(name);
  return found == matrices_.end() ? std::span<const TensorView>() : found->second;
}

std::string_view strip_model_prefix(std::string_view name) {
  constexpr std::array<std::string_view, 4> kPrefixes = {
      "model.language_model.", "language_model.model.", "language_model.", "model."};
  for (const std::string_view prefix : kPrefixes) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return name;
}

bool is_other_modality(std::string_view name) {
  constexpr std::array<std::string_view, 6> kParts = {"vision_tower.",    "audio_tower.",
                                                      "embed_vision.",    "embed_audio.",
                                                      "vision_embedder.", "multi_modal_projector."};
  constexpr std::array<std::string_view, 4> kBounds = {".input_max", ".input_min", ".output_max",
                                                       ".output_min"};
  const std::string_view stripped = strip_model_prefix(name);
  // Old writers saved frequencies of the rotation, which follow from the configuration.
  if (stripped.ends_with("rotary_emb.inv_freq")) return true;
  for (const std::string_view part : kParts) {
    if (stripped.starts_with(part)) return true;
  }
  for (const std::string_view bound : kBounds) {
    if (stripped.ends_with(bound)) return true;
  }
  return false;
}

Result<ResolvedTensors> resolve_tensors(const Checkpoint& checkpoint,
                                        std::span<const TensorSpec> wanted) {
  TensorMatcher matcher(checkpoint.path(), wanted, [](const std::string& name) { return name; });
  for (const SafetensorsFile& file : checkpoint.files()) {
    for (const TensorView& tensor : file.tensors()) {
      if (is_other_modality(tensor.name) || belongs_to_codes(checkpoint, tensor.name)) continue;
      matcher.offer(
          {.name = canonical_name(tensor.name),
           .full_name = tensor.name,
           .shape = tensor.shape,
           .file = file.path()},
          [&](const TensorSpec& spec) { return fit(checkpoint, tensor, spec, file.path()); });
    }
  }
  return matcher.finish();
}

Result<ResolvedTensors> resolve_tensors(const GgufCheckpoint& checkpoint,
                                        std::span<const TensorSpec> wanted) {
  KAKEYA_ASSIGN_OR_RETURN(const GgufArchitecture architecture, gguf_architecture(checkpoint));
  TensorMatcher matcher(checkpoint.path(), wanted, [&](const std::string& name) {
    return gguf_tensor_name(architecture, name);
  });
  for (const GgufFile& file : checkpoint.files()) {
    for (const GgufTensor& tensor : file.tensors()) {
      if (tensor.name == kGgufRopeFactors) continue;
      if (is_other_modality_of_gguf(tensor.name)) continue;
      matcher.offer({.name = checkpoint_tensor_name(architecture, tensor.name),
                     .full_name = tensor.name,
                     .shape = tensor.shape,
                     .file = file.path()},
                    [&](const TensorSpec& spec) { return fit(tensor, spec, file.path()); });
    }
  }
  return matcher.finish();
}

}  // namespace kakeya
