// Weights from a checkpoint folder or a GGUF file.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "formats/gguf_checkpoint.h"
#include "formats/safetensors.h"
#include "formats/tensor_request.h"
#include "model/tensor_source.h"

namespace kakeya {

class CheckpointSource final : public TensorSource {
 public:
  // Opens the folder or file and matches its tensors with those wanted; reads headers only.
  // Errors: as Checkpoint::open, GgufCheckpoint::open and resolve_tensors.
  static Result<std::unique_ptr<CheckpointSource>> open(const std::string& path,
                                                        std::span<const TensorSpec> wanted);
  // Opens it for the tensors of a model.
  static Result<std::unique_ptr<CheckpointSource>> open(const std::string& path,
                                                        const ModelConfig& config);

  Result<TensorView> tensor(std::string_view name) override { return describe(name); }
  Status check(std::string_view name) const override;
  Result<TensorView> describe(std::string_view name) const override;
  bool has(std::string_view name) const override { return tensors_.find(name) != nullptr; }
  bool is_persistent() const override { return true; }
  std::string identity() const override;
  Status check_unchanged() const override;

 private:
  using Files = std::variant<Checkpoint, GgufCheckpoint>;

  CheckpointSource(Files files, ResolvedTensors tensors)
      : files_(std::move(files)), tensors_(std::move(tensors)) {}

  template <typename Opened>
  static Result<std::unique_ptr<CheckpointSource>> match(Result<Opened> files,
                                                         std::span<const TensorSpec> wanted);

  Files files_;  // what the views look at
  ResolvedTensors tensors_;
};

}  // namespace kakeya
