#include "model/checkpoint_source.h"

#include "base/status.h"
#include "formats/stored_order.h"
#include "formats/tied_head.h"

namespace kakeya {

template <typename Opened>
Result<std::unique_ptr<CheckpointSource>> CheckpointSource::match(
    Result<Opened> files, std::span<const TensorSpec> wanted) {
  if (!files) return Unexpected(files.error());
  KAKEYA_ASSIGN_OR_RETURN(ResolvedTensors tensors, resolve_tensors(*files, wanted));
  return std::unique_ptr<CheckpointSource>(
      new CheckpointSource(std::move(files).value(), std::move(tensors), wanted));
}

Result<std::unique_ptr<CheckpointSource>> CheckpointSource::open(
    const std::string& path, std::span<const TensorSpec> wanted) {
  if (is_gguf_path(path)) return match(GgufCheckpoint::open(path), wanted);
  return match(Checkpoint::open(path), wanted);
}

Result<std::unique_ptr<CheckpointSource>> CheckpointSource::open(const std::string& path,
                                                                 const ModelConfig& config) {
  KAKEYA_ASSIGN_OR_RETURN(auto source, open(path, expected_tensors(config)));
  if (!config.tie_word_embeddings) return source;
  if (const Status copy = check_tied_head(source->tensors_); !copy) {
    return Unexpected(copy.error().with_context(path));
  }
  return source;
}

CheckpointSource::CheckpointSource(Files files,
                                   ResolvedTensors tensors,
                                   std::span<const TensorSpec> wanted)
    : files_(std::move(files)), tensors_(std::move(tensors)) {
  const bool gguf = std::holds_alternative<GgufCheckpoint>(files_);
  for (const TensorSpec& spec : wanted) {
    const Form form = {.less = gguf ? 0.0F : spec.less, .paired_rows = gguf ? spec.paired_rows : 0};
    if (form.less != 0.0F || form.paired_rows != 0) forms_.emplace(spec.name, form);
  }
}

CheckpointSource::Form CheckpointSource::form_of(std::string_view name) const {
  const auto found = forms_.find(name);
  return found == forms_.end() ? Form() : found->second;
}

bool CheckpointSource::has(std::string_view name) const {
  return tensors_.find(name) != nullptr || !tensors_.find_matrices(name).empty();
}

bool CheckpointSource::is_persistent(std::string_view name) const {
  return tensors_.find(name) != nullptr && !forms_.contains(name);
}

Result<TensorView> CheckpointSource::describe(std::string_view name) const {
  const auto matrices = tensors_.find_matrices(name);
  if (!matrices.empty()) {
    TensorView all = matrices.front();
    all.shape.insert(all.shape.begin(), std::ssize(matrices));
    return all;
  }
  const TensorView* view = tensors_.find(name);
  if (view == nullptr) return error(StatusCode::kInternal, "no tensor {} was asked for", name);
  if (form_of(name).less == 0.0F) return *view;
  TensorView whole = *view;
  whole.dtype = DType::kF32;
  return whole;
}

Result<TensorView> CheckpointSource::tensor(std::string_view name) {
  KAKEYA_ASSIGN_OR_RETURN(TensorView result, describe(name));
  if (is_persistent(name)) return result;
  made_.clear();
  const Form form = form_of(name);
  if (form.less != 0.0F) {
    KAKEYA_ASSIGN_OR_RETURN(std::vector<float> values, to_f32(*tensors_.find(name)));
    for (float& value : values) value += form.less;
    const auto bytes = std::as_bytes(std::span(values));
    made_.assign(bytes.begin(), bytes.end());
  } else if (form.paired_rows != 0) {
    made_ = in_order(result, form.paired_rows);
  } else {
    for (const TensorView& matrix : tensors_.find_matrices(name)) {
      made_.insert(made_.end(), matrix.data, matrix.data + matrix.bytes());
    }
  }
  result.data = made_.data();
  return result;
}

std::string CheckpointSource::identity() const {
  std::string text;
  const auto add = [&text](const auto& checkpoint) {
    for (const auto& part : checkpoint.files()) text += part.file().identity() + "\n";
  };
  std::visit(add, files_);
  return text;
}

Status CheckpointSource::check_unchanged() const {
  const auto check_files = [](const auto& checkpoint) -> Status {
    for (const auto& part : checkpoint.files()) KAKEYA_TRY(part.file().check_unchanged());
    return {};
  };
  return std::visit(check_files, files_);
}

Status CheckpointSource::check_finite_in_file(const TensorView& view) const {
  if (const Status finite = check_finite(view); !finite) {
    const auto path = [](const auto& files) { return files.path(); };
    return Unexpected(finite.error().with_context(std::visit(path, files_)));
  }
  return {};
}

Status CheckpointSource::check(std::string_view name) const {
  if (const TensorView* view = tensors_.find(name)) return check_finite_in_file(*view);
  KAKEYA_TRY(describe(name));
  for (const TensorView& matrix : tensors_.find_matrices(name)) {
    KAKEYA_TRY(check_finite_in_file(matrix));
  }
  return {};
}

}  // namespace kakeya
