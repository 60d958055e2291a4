// Weights from a checkpoint folder.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "formats/safetensors.h"
#include "formats/tensor_request.h"
#include "model/tensor_source.h"

namespace kakeya {

class CheckpointSource final : public TensorSource {
 public:
  // Opens the folder and matches its tensors with those wanted; reads headers only.
  // Errors: as Checkpoint::open and resolve_tensors.
  static Result<std::unique_ptr<CheckpointSource>> open(const std::string& dir,
                                                        std::span<const TensorSpec> wanted);
  // Those of a model.
  static Result<std::unique_ptr<CheckpointSource>> open(const std::string& dir,
                                                        const ModelConfig& config);

  // Checks every element for NaN and infinity; errors: kDataLoss.
  Result<TensorView> tensor(std::string_view name) override;
  Result<TensorView> describe(std::string_view name) const override;
  bool has(std::string_view name) const override { return tensors_.find(name) != nullptr; }
  bool is_persistent() const override { return true; }

  const Checkpoint& checkpoint() const { return checkpoint_; }

 private:
  explicit CheckpointSource(Checkpoint checkpoint) : checkpoint_(std::move(checkpoint)) {}

  Checkpoint checkpoint_;
  ResolvedTensors tensors_;
};

}  // namespace kakeya
