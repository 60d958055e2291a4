// Picks the backend by name.
#include "backend/backend.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/instruction_set.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_driver.h"
#include "backend/guarded/guarded_backend.h"
#include "backend/mlx/mlx_backend.h"
#include "backend/ref/ref_backend.h"
#include "base/status.h"

namespace kakeya {

Result<std::unique_ptr<Backend>> create_backend(const BackendOptions& options) {
  const std::string_view name = options.name;
  if (name == "cpu") return cpu::create_cpu_backend("auto", options.threads);
  if (name.starts_with("cpu/")) return cpu::create_cpu_backend(name.substr(4), options.threads);
  if (name == "ref") return ref::create_ref_backend();
  if (name == "guarded") return guarded::create_guarded_backend();
  if (name == "cuda-emulated")
    return cuda::create_emulated_backend({}, options.threads.num_threads);
  if (name == "cuda") return cuda::create_cuda_backend("0", options.threads.num_threads);
  if (name.starts_with("cuda/"))
    return cuda::create_cuda_backend(name.substr(5), options.threads.num_threads);
  if (name == "mlx") return mlx::create_mlx_backend();
  if (name.starts_with("mlx/")) return mlx::create_mlx_backend(name.substr(4));
  return invalid_argument(
      "EngineOptions::backend must be cpu, cpu/INSTRUCTION_SET, cuda, cuda/CARD, mlx, mlx/DEVICE, "
      "ref, guarded or cuda-emulated but is '{}'",
      name);
}

std::vector<BackendSupport> backends() {
  std::vector<BackendSupport> found = {{"cpu", "", {}},
                                       {"ref", "", {}},
                                       {"guarded", "", {}},
                                       {"cuda-emulated", "", {}},
                                       {"mlx", std::string(mlx::missing()), mlx::gpu()},
                                       {"cuda", "", {}}};
  BackendSupport& cuda = found.back();
  const auto card = cuda::examine_card();
  if (card) {
    cuda.device = DeviceDescription{
        card->name, fmt::format("{}.{}", card->capability_major, card->capability_minor),
        card->memory_bytes, card->free_bytes};
  } else {
    cuda.missing = card.error().message();
  }
  return found;
}

std::vector<InstructionSetSupport> instruction_sets() {
  return cpu::list_instruction_sets();
}

}  // namespace kakeya
