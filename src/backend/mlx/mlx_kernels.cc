#include "backend/mlx/mlx_kernels.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <tuple>

#include "backend/mlx/mlx_space.h"

namespace kakeya::mlx {
namespace {

constexpr int kSimdgroup = 32;
constexpr int kThreads = 256;  // of a group whose threads have nothing to do with one another

std::vector<mx::array> run_on_gpu(Kernel kernel,
                                  const std::vector<mx::array>& inputs,
                                  const KernelOutputs& outputs,
                                  const KernelLaunch& launch,
                                  mx::Stream stream) {
  // Made once, for MLX searches the texts then.
  static const std::array<mx::fast::CustomKernelFunction, kNumKernels> kFunctions = [] {
    std::array<mx::fast::CustomKernelFunction, kNumKernels> made;
    for (std::size_t i = 0; i < kNumKernels; ++i) {
      const KernelText& text = text_of(static_cast<Kernel>(i));
      made[i] = mx::fast::metal_kernel("kakeya_" + text.name, text.inputs, text.outputs,
                                       source_of(static_cast<Kernel>(i)));
    }
    return made;
  }();
  std::vector<std::pair<std::string, mx::fast::TemplateArg>> constants;
  for (const auto& [name, value] : launch.constants) {
    std::visit([&, &name = name](auto number) { constants.emplace_back(name, number); }, value);
  }
  const int threads = launch.are_simdgroups ? kSimdgroup : std::min(kThreads, launch.x);
  const int x = launch.are_simdgroups ? launch.x * kSimdgroup : launch.x;
  return kFunctions[static_cast<std::size_t>(kernel)](inputs, outputs.shapes, outputs.dtypes,
                                                      {x, launch.y, launch.z}, {threads, 1, 1},
                                                      constants, std::nullopt, false, stream);
}

}  // namespace

const KernelText& text_of(Kernel kernel) {
  // The texts in Kernel's order.
  static const std::array<KernelText, kNumKernels> kTexts = {{
      {"route", {"logits", "scales"}, {"experts", "weights"}},
      {"rotation", {"x", "cos", "sin"}, {"out"}},
      {"gate", {"x", "other"}, {"out"}},
      {"weighted_sum", {"x", "factors"}, {"out"}},
      {"scaled_add", {"a", "b", "scale"}, {"out"}},
      {"attention_span",
       {"queries", "keys", "values", "k_norm", "cos", "sin", "seen", "spans", "scale"},
       {"sums", "parts"}},
      {"join_spans", {"sums", "parts"}, {"out"}},
  }};
  return kTexts[static_cast<std::size_t>(kernel)];
}

std::vector<mx::array> run_kernel(Kernel kernel,
                                  const std::vector<mx::array>& inputs,
                                  const KernelOutputs& outputs,
                                  const KernelLaunch& launch,
                                  mx::Stream stream) {
  const bool on_gpu = stream.device == mx::Device::gpu;
  return on_gpu ? run_on_gpu(kernel, inputs, outputs, launch, stream)
                : run_as_cpp(kernel, inputs, outputs, launch, stream);
}

}  // namespace kakeya::mlx
