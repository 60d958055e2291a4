// The seam between the networks and the machines that run them. A Backend prepares weights and
// makes executors, which run the operations of a pass (executor.h). The models are written once
// against both files.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/executor.h"
#include "base/memory_budget.h"
#include "base/memory_space.h"
#include "base/thread_pool.h"
#include "kakeya/options.h"
#include "kakeya/status.h"
#include "tensor/integer_blocks.h"
#include "tensor/kv_format.h"
#include "tensor/tensor_view.h"

namespace kakeya {

// The integers with which products of such a weight are computed, if they are: where products are
// fast and the weight is quantised to integers. Then activations are rounded to int8 as well, in
// runs of 32 columns: step = the largest |x| of the run / 127, code = round(x / step), ties to
// even; runs below 1e-36 are 0. For run after run (or, with scales for 16 columns, half after half)
//
//   out = fma(the sum of (q - zero) * code, scale * step, out),  and, with minimums,
//   out = fma(minimum, step * the sum of codes, out),
//
// in f32, where the sums are exact: every implementation gives the same bits.
std::optional<IntegerFormat> fast_integers(const TensorView& weight, Compute compute);

// The type in which backends hold a weight without such integers: its own; that of quantised ones
// is f32, or bf16, to which they are rounded, where products are fast.
DType loaded_dtype(const TensorView& weight, Compute compute);

// Loaded weights and executors of one kind. Thread-safe once its weights are loaded.
class Backend {
 public:
  virtual ~Backend() = default;

  // "ref", "cpu/avx512_bf16": what produced the bits, for reports.
  virtual std::string_view name() const = 0;
  virtual int num_threads() const = 0;
  // True if passes have batch invariance (row invariance): a row has the same bits whatever else is
  // in its pass. Where that is not known it is measured, with the model.
  virtual bool is_row_invariant() const { return true; }
  // True if attention reads calibrated codes of the KV cache.
  virtual bool reads_codes() const { return false; }
  // Where weights, keys and values, and the rows of operations lie.
  virtual MemorySpace& memory() const { return MemorySpace::host(); }

  // Prepares weights [N, K] or [X, N, K] (F32, F16, BF16 or quantised; stacked at
  // weight.stack_stride), held as fast_integers() or loaded_dtype() say; the view may go away
  // afterwards.
  // Errors: kResourceExhausted; kDataLoss where a number is NaN or infinite.
  virtual Result<std::unique_ptr<Matrix>> load_matrix(const TensorView& weight,
                                                      Compute compute,
                                                      MemoryBudget& budget) = 0;
  // The bytes that load_matrix will charge for such a weight, of which only shape and types are
  // looked at.
  virtual std::uint64_t matrix_bytes(const TensorView& weight, Compute compute) const = 0;

  // The name of the layout of Matrix::packed(), another one whenever the same weight would be
  // packed to other bytes; empty if there is none.
  virtual std::string_view packed_layout() const { return {}; }
  // Makes the matrix that load_matrix() gives from the bytes that were its packed(), filled up to
  // matrix_bytes() with zeros. They are read where they lie, must outlive the matrix, and are
  // charged like its own. Only shape and types of the weight are looked at. Errors:
  // kResourceExhausted; kInvalidArgument for another number of bytes; kUnimplemented without
  // packed_layout().
  virtual Result<std::unique_ptr<Matrix>> map_matrix(const TensorView& weight,
                                                     Compute compute,
                                                     std::span<const std::byte> packed,
                                                     MemoryBudget& budget);

  // A table for embed() only, read in place: the view's memory must outlive it. Charges nothing.
  virtual Result<std::unique_ptr<Matrix>> map_table(const TensorView& weight) = 0;

  // Errors: kResourceExhausted if the scratch exceeds the budget; kUnimplemented for shapes that
  // the backend has no code for.
  virtual Result<std::unique_ptr<Executor>> create_executor(const ExecutorPlan& plan,
                                                            MemoryBudget& budget) = 0;
  // The bytes that create_executor will charge.
  virtual std::uint64_t executor_bytes(const ExecutorPlan& plan) const = 0;
};

struct BackendOptions {
  // "cpu": with the best of instruction_sets() that this machine runs, "cpu/avx2": with this one;
  // "ref", the specification; "guarded", the same on memory that stands for a device's;
  // "cuda": an NVIDIA card, "cuda/1": another one than the first; "cuda-emulated": its code, run by
  // the host; "mlx": MLX's GPU if there is one, else its CPU device; "mlx/gpu" and "mlx/cpu".
  std::string name = "cpu";
  ThreadPoolOptions threads;
};

// Errors: kInvalidArgument for an unknown name, instruction set or card, kFailedPrecondition for an
// instruction set or a card that this machine lacks, kUnavailable for a card that does not work,
// kUnimplemented for a backend that is not in this build.
Result<std::unique_ptr<Backend>> create_backend(const BackendOptions& options);

// A device that has memory of its own.
struct DeviceDescription {
  std::string name;
  std::string capability;  // the generation, as its maker counts: "9.0"
  std::uint64_t memory_bytes = 0;
  std::uint64_t free_bytes = 0;
  std::string note = {};  // what does not work there as it should; empty if nothing
};

// All backends there are; `missing` says why one cannot be had in this build or on this machine,
// and is empty otherwise. Asks drivers of devices, which may take a second.
struct BackendSupport {
  std::string_view name;
  std::string missing;
  std::optional<DeviceDescription> device;
};
std::vector<BackendSupport> backends();

// The instruction sets this build has code for, best first, and whether this machine runs them.
struct InstructionSetSupport {
  std::string_view name;
  bool supported = false;
};
std::vector<InstructionSetSupport> instruction_sets();

}  // namespace kakeya
