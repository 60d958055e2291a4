// Writing of the weights of a checkpoint folder: safetensors files whose tensors are converted
// while they are written, some MiB at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/memory_budget.h"
#include "base/thread_pool.h"
#include "convert/tensor_encoder.h"
#include "kakeya/status.h"

namespace kakeya {

struct WriterOptions {
  // The limit of a file, as mlx-lm cuts them. A larger tensor has a file of its own.
  std::uint64_t max_shard_bytes = std::uint64_t{5} << 30;
  // Whose names and shapes the file has, as readers want to know it: "mlx" or "pt".
  std::string format = "mlx";
  ProgressCallback progress = {};
  const Importance* importance = nullptr;  // as TensorEncoder's
};

// Writes model.safetensors, or numbered shards and their index, into the folder. Scales and biases
// of "X.weight" in an affine format are "X.scales" and "X.biases", of the type that its numbers
// had. Memory and errors: those of TensorEncoder; kUnavailable if the disk refuses.
Status write_checkpoint(const std::string& folder,
                        std::span<const OutputTensor> tensors,
                        const WriterOptions& options,
                        MemoryBudget& budget,
                        ThreadPool& pool);

}  // namespace kakeya
