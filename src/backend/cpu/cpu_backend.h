// The CPU backend: packed weights, a thread pool, and the leaves of one instruction-set unit.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"

namespace kakeya::cpu {

// Creates a backend with the unit of an instruction set, or of the best one here for "auto".
// Errors: as create_backend.
Result<std::unique_ptr<Backend>> create_cpu_backend(std::string_view instruction_set,
                                                    const ThreadPoolOptions& threads);

// Creates a backend with the leaves of any unit, which must outlive the backend and run on this
// machine. Tests run units here that no option selects (tests/twin).
std::unique_ptr<Backend> create_cpu_backend(const Kernels& kernels,
                                            const ThreadPoolOptions& threads);

}  // namespace kakeya::cpu
