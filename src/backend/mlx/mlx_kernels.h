// Kernels of this backend's own. The text of each, kernels/NAME.metal, is the body of a function in
// Metal's language and of one in C++ at once: a GPU is given the text, and the CPU device runs what
// the C++ compiler makes of it, thread by thread.
#pragma once

#include <mlx/mlx.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace kakeya::mlx {

enum class Kernel : std::uint8_t {
  kRoute,
  kRotation,
  kGate,
  kWeightedSum,
  kScaledAdd,
  kAttentionSpan,
  kJoinSpans
};
inline constexpr std::size_t kNumKernels = 7;

// A kernel's text, its name, and the names that it has for its arrays.
struct KernelText {
  std::string name;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
};
const KernelText& text_of(Kernel kernel);
// The text itself.
const char* source_of(Kernel kernel);

struct KernelLaunch {
  // Simdgroups of 32 threads each, or threads.
  int x = 1;
  int y = 1;
  int z = 1;
  bool are_simdgroups = false;
  // The constants of the text, by name.
  std::vector<std::pair<std::string, std::variant<int, bool>>> constants = {};
};

// The shapes and types of the outputs, as MLX takes them.
struct KernelOutputs {
  std::vector<::mlx::core::Shape> shapes;
  std::vector<::mlx::core::Dtype> dtypes;
};

// Records a kernel: on a stream of a GPU as Metal compiles it, on another as C++. Indices out of
// bounds end the process there, with a line.
std::vector<::mlx::core::array> run_kernel(Kernel kernel,
                                           const std::vector<::mlx::core::array>& inputs,
                                           const KernelOutputs& outputs,
                                           const KernelLaunch& launch,
                                           ::mlx::core::Stream stream);

// The second of those ways.
std::vector<::mlx::core::array> run_as_cpp(Kernel kernel,
                                           const std::vector<::mlx::core::array>& inputs,
                                           const KernelOutputs& outputs,
                                           const KernelLaunch& launch,
                                           ::mlx::core::Stream stream);

}  // namespace kakeya::mlx
