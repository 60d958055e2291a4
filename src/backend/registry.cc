// Picks the backend by name.
#include "backend/backend.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/instruction_set.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/guarded/guarded_backend.h"
#include "backend/mlx/mlx_backend.h"
#include "backend/none/missing_backends.h"
#include "backend/ref/ref_backend.h"
#include "base/status.h"

namespace kakeya {

Result<std::unique_ptr<Backend>> create_backend(const BackendOptions& options) {
  const std::string_view name = options.name;
  if (name == "cpu") return cpu::create_cpu_backend("auto", options.threads);
  if (name.starts_with("cpu/")) return cpu::create_cpu_backend(name.substr(4), options.threads);
  if (name == "ref") return ref::create_ref_backend();
  if (name == "guarded") return guarded::create_guarded_backend();
  if (name == "cuda-emulated") return cuda::create_emulated_backend();
  if (name == "mlx") return mlx::create_mlx_backend();
  for (const none::MissingBackend& missing : none::missing_backends()) {
    if (name != missing.name) continue;
    return error(StatusCode::kUnimplemented, "backend {} is not available: {}", name,
                 missing.reason);
  }
  return invalid_argument(
      "EngineOptions::backend must be cpu, cpu/INSTRUCTION_SET, mlx, ref, guarded or cuda-emulated "
      "but "
      "is '{}'",
      name);
}

std::vector<BackendSupport> backends() {
  std::vector<BackendSupport> found = {
      {"cpu", ""}, {"ref", ""}, {"guarded", ""}, {"cuda-emulated", ""}, {"mlx", mlx::missing()}};
  for (const none::MissingBackend& missing : none::missing_backends()) {
    found.push_back({missing.name, missing.reason});
  }
  return found;
}

std::vector<InstructionSetSupport> instruction_sets() {
  return cpu::list_instruction_sets();
}

}  // namespace kakeya
