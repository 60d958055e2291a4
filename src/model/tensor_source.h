// Where a model's weights come from: a checkpoint, or random numbers of the same shapes.
#pragma once

#include <string>
#include <string_view>

#include "kakeya/status.h"
#include "tensor/tensor_view.h"

namespace kakeya {

// Tensors by their checkpoint names without prefix: "layers.0.self_attn.q_proj.weight". All names,
// shapes and dtypes were checked when the source was made. One thread at a time.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // The tensor. Its memory is valid until the next call, unless is_persistent(name).
  // Errors: kInternal for an unknown name.
  virtual Result<TensorView> tensor(std::string_view name) = 0;

  // Searches a tensor for NaN and infinity, if it could have any.
  // Errors: kDataLoss saying where in which file; kInternal for an unknown name.
  virtual Status check(std::string_view /*name*/) const { return {}; }

  // True if there is a tensor of this name.
  virtual bool has(std::string_view name) const = 0;

  // The tensor without its values: `data` may be null, and nothing is checked or made.
  virtual Result<TensorView> describe(std::string_view name) const = 0;

  // True if the memory of the tensor lives as long as the source (a mapped file).
  virtual bool is_persistent(std::string_view name) const = 0;

  // The files that the tensors are read from, as they were when opened: another text if one of them
  // is replaced or written to. Empty if there are none.
  virtual std::string identity() const { return {}; }
  // Checks the files after loading. Errors: kDataLoss if one of the files was written to since it
  // was opened.
  virtual Status check_unchanged() const { return {}; }
};

}  // namespace kakeya
