#include "formats/tensor_request.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "formats/printable.h"

namespace kakeya {

namespace {

constexpr std::size_t kMaxListedProblems = 100;

bool is_weight_dtype(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

// Problems found so far, spelled out up to a limit.
class ProblemList {
 public:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    ++count_;
    if (count_ > kMaxListedProblems) return;
    if (count_ > 1) text_ += "; ";
    text_ += fmt::format(format, std::forward<Args>(args)...);
  }

  Status status(const Checkpoint& checkpoint) const {
    if (count_ == 0) return {};
    const std::size_t hidden = count_ > kMaxListedProblems ? count_ - kMaxListedProblems : 0;
    return invalid_argument("{}: {} tensor{} do{} not fit the configuration: {}{}",
                            checkpoint.path(), count_, count_ == 1 ? "" : "s",
                            count_ == 1 ? "es" : "", text_,
                            hidden == 0 ? "" : fmt::format("; and {} more", hidden));
  }

 private:
  std::size_t count_ = 0;
  std::string text_;
};

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kScales = ".scales";
constexpr std::string_view kBiases = ".biases";
constexpr std::string_view kFusedExperts = ".experts.gate_up_proj";

// Gate and up of a fused tensor as tensors of their own; without names if it is none.
std::pair<TensorSpec, TensorSpec> halves_of(const TensorSpec& fused) {
  if (!fused.name.ends_with(kFusedExperts) || fused.shape.size() != 3) return {};
  const std::string prefix = fused.name.substr(0, fused.name.size() - kFusedExperts.size());
  const Shape shape = {fused.shape[0], fused.shape[1] / 2, fused.shape[2]};
  return {{prefix + ".experts.gate_proj", shape}, {prefix + ".experts.up_proj", shape}};
}

// What is wanted by name, halves of fused experts included.
class SpecIndex {
 public:
  explicit SpecIndex(std::span<const TensorSpec> wanted) {
    for (const TensorSpec& spec : wanted) {
      specs_.emplace(spec.name, spec);
      const auto [gate, up] = halves_of(spec);
      if (gate.name.empty()) continue;
      specs_.emplace(gate.name, gate);
      specs_.emplace(up.name, up);
    }
  }

  // nullptr if nobody wants it.
  const TensorSpec* find(std::string_view name) const {
    const auto found = specs_.find(name);
    return found == specs_.end() ? nullptr : &found->second;
  }

 private:
  std::map<std::string, TensorSpec, std::less<>> specs_;
};

// The name of what lies beside a tensor "X.weight": "X" and the suffix.
std::string beside(std::string_view weight, std::string_view suffix) {
  return std::string(weight.substr(0, weight.size() - kWeight.size())) + std::string(suffix);
}

// Whether it is the scales or biases of an affine tensor, which is found by its codes.
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
  constexpr std::string_view kSplitExperts = ".experts.switch_glu.";
  std::string result(strip_model_prefix(name));
  const std::size_t at = result.find(kSplitExperts);
  if (at == std::string::npos || !result.ends_with(kWeight)) return result;
  result.erase(result.size() - kWeight.size());
  return result.replace(at, kSplitExperts.size(), ".experts.");
}

// The tensor as it is wanted.
Result<TensorView> fit(const Checkpoint& checkpoint,
                       const TensorView& tensor,
                       const TensorSpec* spec,
                       const std::string& file) {
  if (spec == nullptr) {
    return invalid_argument("unexpected {} {} in {}", printable(tensor.name),
                            shape_string(tensor.shape), file);
  }
  const std::string where = fmt::format("{} in {}", printable(tensor.name), file);
  if (tensor.dtype == DType::kU32) return affine_tensor(checkpoint, tensor, spec->shape, where);
  if (tensor.shape != spec->shape) {
    return invalid_argument("{}: expected shape {}, got {}", where, shape_string(spec->shape),
                            shape_string(tensor.shape));
  }
  if (!is_weight_dtype(tensor.dtype)) {
    return invalid_argument("{}: expected F32, F16 or BF16, got {}", where,
                            dtype_name(tensor.dtype));
  }
  return tensor;
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

std::string_view strip_model_prefix(std::string_view name) {
  constexpr std::array<std::string_view, 4> kPrefixes = {
      "model.language_model.", "language_model.model.", "language_model.", "model."};
  for (const std::string_view prefix : kPrefixes) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return name;
}

bool is_other_modality(std::string_view name) {
  constexpr std::array<std::string_view, 5> kParts = {
      "vision_tower.", "audio_tower.", "embed_vision.", "embed_audio.", "vision_embedder."};
  constexpr std::array<std::string_view, 4> kBounds = {".input_max", ".input_min", ".output_max",
                                                       ".output_min"};
  const std::string_view stripped = strip_model_prefix(name);
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
  const SpecIndex specs(wanted);
  ResolvedTensors result;
  ProblemList problems;
  std::map<std::string, std::string_view, std::less<>> seen;  // canonical name -> full name
  for (const SafetensorsFile& file : checkpoint.files()) {
    for (const TensorView& tensor : file.tensors()) {
      if (is_other_modality(tensor.name) || belongs_to_codes(checkpoint, tensor.name)) continue;
      const std::string name = canonical_name(tensor.name);
      const auto [earlier, first] = seen.emplace(name, tensor.name);
      const TensorSpec* spec = specs.find(name);
      if (!first) {
        problems.add("{} in {} is the same tensor as {}", printable(tensor.name), file.path(),
                     printable(earlier->second));
        continue;
      }
      if (spec != nullptr && spec->presence == TensorPresence::kRedundant) continue;
      const auto view = fit(checkpoint, tensor, spec, file.path());
      if (view) {
        result.views_.emplace(name, *view);
      } else {
        problems.add("{}", view.error().message());
      }
    }
  }
  for (const TensorSpec& spec : wanted) {
    const auto [gate, up] = halves_of(spec);
    const bool fused = seen.contains(spec.name);
    if (!gate.name.empty()) {
      const bool halves[] = {seen.contains(gate.name), seen.contains(up.name)};
      if (fused && (halves[0] || halves[1])) {
        problems.add("{} is there fused and not fused", spec.name);
      }
      if (halves[0] && halves[1]) continue;
    }
    if (spec.presence != TensorPresence::kRequired || fused) continue;
    problems.add("missing {} {}", spec.name, shape_string(spec.shape));
  }
  KAKEYA_TRY(problems.status(checkpoint));
  return result;
}

}  // namespace kakeya
