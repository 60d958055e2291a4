// The CPU backend: packed weights, a thread pool, and the leaves of one instruction-set unit.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace kakeya::cpu {

// Errors: as create_backend.
Result<std::unique_ptr<Backend>> create_cpu_backend(const BackendOptions& options);

}  // namespace kakeya::cpu
