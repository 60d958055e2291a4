// Picks the backend by name.
#include "backend/registry.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/instruction_set.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_driver.h"
#include "backend/mlx/mlx_backend.h"
#include "backend/ref/ref_backend.h"
#include "base/status.h"

namespace kakeya {
namespace {

struct Added {
  std::string_view name;
  CreateBackend create;
};

std::vector<Added>& added() {
  static std::vector<Added> all;
  return all;
}

}  // namespace

void add_backend(std::string_view name, CreateBackend create) {
  added().push_back({name, create});
}

Result<std::unique_ptr<Backend>> create_backend(const BackendOptions& options) {
  const std::string_view name = options.name;
  if (name == "cpu") return cpu::create_cpu_backend("auto", options.threads);
  if (name.starts_with("cpu/")) return cpu::create_cpu_backend(name.substr(4), options.threads);
  if (name == "ref") return ref::create_ref_backend();
  if (name == "cuda") return cuda::create_cuda_backend("0", options.threads.num_threads);
  if (name.starts_with("cuda/"))
    return cuda::create_cuda_backend(name.substr(5), options.threads.num_threads);
  if (name == "mlx") return mlx::create_mlx_backend();
  if (name.starts_with("mlx/")) return mlx::create_mlx_backend(name.substr(4));
  std::string others;
  for (const Added& other : added()) {
    if (name == other.name) return other.create(options);
    others += fmt::format(", {}", other.name);
  }
  return invalid_argument(
      "EngineOptions::backend must be cpu, cpu/INSTRUCTION_SET, cuda, cuda/CARD, mlx, mlx/DEVICE, "
      "ref{} but is '{}'",
      others, name);
}

std::vector<BackendSupport> backends() {
  std::vector<BackendSupport> found = {{"cpu", "", {}},
                                       {"ref", "", {}},
                                       {"mlx", std::string(mlx::missing()), mlx::gpu()},
                                       {"cuda", "", {}}};
  const auto card = cuda::examine_card();
  if (card) {
    found.back().device = DeviceDescription{
        card->name, fmt::format("{}.{}", card->capability_major, card->capability_minor),
        card->memory_bytes, card->free_bytes};
  } else {
    found.back().missing = card.error().message();
  }
  for (const Added& other : added()) found.push_back({other.name, "", {}});
  return found;
}

std::vector<InstructionSetSupport> instruction_sets() {
  return cpu::list_instruction_sets();
}

}  // namespace kakeya
