// Weights from a checkpoint folder or a GGUF file, in the form that networks use: experts in one
// tensor, norms as weights, rows of heads in order.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

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

  Result<TensorView> tensor(std::string_view name) override;
  Status check(std::string_view name) const override;
  Result<TensorView> describe(std::string_view name) const override;
  bool has(std::string_view name) const override;
  bool is_persistent(std::string_view name) const override;
  std::string identity() const override;
  Status check_unchanged() const override;

 private:
  using Files = std::variant<Checkpoint, GgufCheckpoint>;

  // How a tensor differs in the file from what it stands for (TensorSpec).
  struct Form {
    float less = 0.0F;
    std::int64_t paired_rows = 0;
  };

  CheckpointSource(Files files, ResolvedTensors tensors, std::span<const TensorSpec> wanted);

  Form form_of(std::string_view name) const;
  Status check_finite_in_file(const TensorView& view) const;

  template <typename Opened>
  static Result<std::unique_ptr<CheckpointSource>> match(Result<Opened> files,
                                                         std::span<const TensorSpec> wanted);

  Files files_;  // what the views look at
  ResolvedTensors tensors_;
  std::map<std::string, Form, std::less<>> forms_;  // of those that differ
  std::vector<std::byte> made_;  // a tensor that is in another form in the file; the last one
};

}  // namespace kakeya
