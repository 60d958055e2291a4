#include "formats/tensor_request.h"

#include <array>
#include <unordered_map>
#include <vector>

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

}  // namespace

const TensorView& ResolvedTensors::at(std::string_view name) const {
  const TensorView* view = find(name);
  KAKEYA_CHECK(view != nullptr);
  return *view;
}

const TensorView* ResolvedTensors::find(std::string_view name) const {
  const auto found = views_.find(name);
  return found == views_.end() ? nullptr : found->second;
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
  std::unordered_map<std::string_view, const TensorSpec*> specs;
  for (const TensorSpec& spec : wanted) specs.emplace(spec.name, &spec);

  ResolvedTensors result;
  ProblemList problems;
  std::unordered_map<std::string_view, std::string_view> seen;  // stripped name -> full name
  for (const SafetensorsFile& file : checkpoint.files()) {
    for (const TensorView& tensor : file.tensors()) {
      if (is_other_modality(tensor.name)) continue;
      const std::string_view name = strip_model_prefix(tensor.name);
      const auto [earlier, first] = seen.emplace(name, tensor.name);
      const auto spec = specs.find(name);
      if (!first) {
        problems.add("{} in {} is the same tensor as {}", printable(tensor.name), file.path(),
                     printable(earlier->second));
      } else if (spec == specs.end()) {
        problems.add("unexpected {} {} in {}", printable(tensor.name), shape_string(tensor.shape),
                     file.path());
      } else if (spec->second->presence == TensorPresence::kRedundant) {
        continue;
      } else if (tensor.shape != spec->second->shape) {
        problems.add("{} in {}: expected shape {}, got {}", printable(tensor.name), file.path(),
                     shape_string(spec->second->shape), shape_string(tensor.shape));
      } else if (!is_weight_dtype(tensor.dtype)) {
        problems.add("{} in {}: expected F32, F16 or BF16, got {}", printable(tensor.name),
                     file.path(), dtype_name(tensor.dtype));
      } else {
        result.views_.emplace(name, &tensor);
      }
    }
  }
  for (const TensorSpec& spec : wanted) {
    if (spec.presence == TensorPresence::kRequired && !seen.contains(spec.name)) {
      problems.add("missing {} {}", spec.name, shape_string(spec.shape));
    }
  }
  KAKEYA_TRY(problems.status(checkpoint));
  return result;
}

}  // namespace kakeya
