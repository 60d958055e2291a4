// Picks the backend by name.
#include "backend/backend.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/instruction_set.h"
#include "backend/ref/ref_backend.h"
#include "base/status.h"

namespace kakeya {

Result<std::unique_ptr<Backend>> create_backend(const BackendOptions& options) {
  if (options.name == "cpu") return cpu::create_cpu_backend(options);
  if (options.name == "ref") return ref::create_ref_backend();
  return invalid_argument("EngineOptions::backend must be cpu or ref but is '{}'", options.name);
}

std::vector<InstructionSetSupport> instruction_sets() {
  return cpu::list_instruction_sets();
}

}  // namespace kakeya
