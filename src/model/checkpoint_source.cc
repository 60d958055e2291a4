#include "model/checkpoint_source.h"

#include "base/status.h"

namespace kakeya {

Result<std::unique_ptr<CheckpointSource>> CheckpointSource::open(
    const std::string& dir, std::span<const TensorSpec> wanted) {
  KAKEYA_ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::open(dir));
  std::unique_ptr<CheckpointSource> source(new CheckpointSource(std::move(checkpoint)));
  KAKEYA_ASSIGN_OR_RETURN(source->tensors_, resolve_tensors(source->checkpoint_, wanted));
  return source;
}

Result<std::unique_ptr<CheckpointSource>> CheckpointSource::open(const std::string& dir,
                                                                 const ModelConfig& config) {
  return open(dir, expected_tensors(config));
}

Result<TensorView> CheckpointSource::describe(std::string_view name) const {
  const TensorView* view = tensors_.find(name);
  if (view == nullptr) return error(StatusCode::kInternal, "no tensor {} was asked for", name);
  return *view;
}

Result<TensorView> CheckpointSource::tensor(std::string_view name) {
  KAKEYA_ASSIGN_OR_RETURN(TensorView view, describe(name));
  if (const Status finite = check_finite(view); !finite) {
    return Unexpected(finite.error().with_context(checkpoint_.path()));
  }
  return view;
}

}  // namespace kakeya
