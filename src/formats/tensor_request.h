// Matches the tensors that a model wants with those that a checkpoint holds, whatever prefix the
// checkpoint uses, and reports everything that does not fit at once.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf_checkpoint.h"
#include "formats/model_tensors.h"
#include "formats/safetensors.h"
#include "kakeya/status.h"

namespace kakeya {

// The wanted tensors by their name without prefix. Their data lives as long as the checkpoint.
class ResolvedTensors {
 public:
  // The tensor must have been wanted and not optional.
  const TensorView& at(std::string_view name) const;
  // nullptr if it is absent, or there as matrices one by one.
  const TensorView* find(std::string_view name) const;
  // The matrices [N, K] of a tensor [X, N, K] that the checkpoint holds one by one; empty if it
  // does not.
  std::span<const TensorView> find_matrices(std::string_view name) const;
  std::size_t size() const { return views_.size() + matrices_.size(); }

 private:
  friend class TensorMatcher;
  std::map<std::string, TensorView, std::less<>> views_;
  std::map<std::string, std::vector<TensorView>, std::less<>> matrices_;
};

// The name without the prefix of a text decoder: "model.language_model.", "language_model.model.",
// "language_model.", "model." or none.
std::string_view strip_model_prefix(std::string_view name);

// True if the tensor is of the vision or audio part of a multimodal checkpoint, or a clipping bound
// of its quantised training (input_max and the like). Such tensors are skipped.
bool is_other_modality(std::string_view name);

// A tensor X.weight in MLX's affine format comes with X.scales and X.biases; bits and group size
// follow from the shapes. Where fused experts "gate_up_proj" [X, 2 N, K] are wanted, "gate_proj"
// and "up_proj" [X, N, K] will do, and of experts in place of an MLP each by itself, as
// "experts.7.gate_proj.weight" [N, K].
//
// Errors: one kInvalidArgument that lists every wanted tensor that is missing, has another shape or
// is neither floating point (F32, F16, BF16) nor affine, and every tensor of the checkpoint that
// nobody wants, with expected and got shapes and files. Only the first 100 are spelled out.
Result<ResolvedTensors> resolve_tensors(const Checkpoint& checkpoint,
                                        std::span<const TensorSpec> wanted);

// Resolves the tensors of a GGUF file by the names that its architecture gives them; tensors are
// floating point or blocks. Divisors of frequencies are passed over: they are read with the
// configuration. Errors: as above; those of gguf_architecture().
Result<ResolvedTensors> resolve_tensors(const GgufCheckpoint& checkpoint,
                                        std::span<const TensorSpec> wanted);

}  // namespace kakeya
