#include "model/checkpoint_source.h"

#include "base/status.h"
#include "formats/tied_head.h"

namespace kakeya {

template <typename Opened>
Result<std::unique_ptr<CheckpointSource>> CheckpointSource::match(
    Result<Opened> files, std::span<const TensorSpec> wanted) {
  if (!files) return Unexpected(files.error());
  KAKEYA_ASSIGN_OR_RETURN(ResolvedTensors tensors, resolve_tensors(*files, wanted));
  return std::unique_ptr<CheckpointSource>(
      new CheckpointSource(std::move(files).value(), std::move(tensors)));
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

Result<TensorView> CheckpointSource::describe(std::string_view name) const {
  const TensorView* view = tensors_.find(name);
  if (view == nullptr) return error(StatusCode::kInternal, "no tensor {} was asked for", name);
  return *view;
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

Status CheckpointSource::check(std::string_view name) const {
  KAKEYA_ASSIGN_OR_RETURN(const TensorView view, describe(name));
  if (const Status finite = check_finite(view); !finite) {
    const auto path = [](const auto& files) { return files.path(); };
    return Unexpected(finite.error().with_context(std::visit(path, files_)));
  }
  return {};
}

}  // namespace kakeya
