// The backend on MLX, Apple's array library: its operations are recorded and run when somebody asks
// for what they give. Builds without MLX have the same functions (src/backend/none/no_mlx.cc).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "backend/backend.h"

namespace kakeya::mlx {

// Why this build has no such backend; empty if it has one.
std::string_view missing();

// The GPU that MLX has here, if it has one; its memory is what it may use without paging.
std::optional<DeviceDescription> gpu();

// Creates a backend on a device of MLX's: "cpu", "gpu", or by default the GPU if there is one. A
// GPU runs kernels of this backend's own, or where those do not pass MLX's operations, as the CPU
// device does. Sums are f32, whatever the weights' type and the mode of computing. A pass is run at
// its end, which says what MLX reports there: kResourceExhausted, kInternal. What MLX reports while
// it records, or in download(), leaves as its exception. Errors: kUnimplemented if this build has
// none, kInvalidArgument for another device, kFailedPrecondition if there is no GPU,
// kResourceExhausted if the system does not give the addresses.
Result<std::unique_ptr<Backend>> create_mlx_backend(std::string_view device = "");
// Creates one on the CPU device that runs the kernels, as C++: "mlx/kernels", for tests. Errors:
// kUnimplemented and kResourceExhausted as above.
Result<std::unique_ptr<Backend>> create_mlx_kernels_backend();

// Counts of what a backend's executors did, all of them together.
struct Counters {
  std::uint64_t evaluations = 0;  // how often recorded operations were run
  std::uint64_t primitives = 0;   // of MLX, that those runs had to do
  std::uint64_t operations = 0;   // of the seam
  // The bytes that arrays have now, and those that MLX keeps for further ones, as MLX counts them
  // for all backends of the process.
  std::uint64_t active_bytes = 0;
  std::uint64_t cached_bytes = 0;
  // The most that arrays had since somebody asked last.
  std::uint64_t peak_bytes = 0;
};

// `backend` is of create_mlx_backend().
Counters counters(const Backend& backend);

}  // namespace kakeya::mlx
