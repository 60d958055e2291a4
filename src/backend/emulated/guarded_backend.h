// The reference backend on memory that is inaccessible except while one of its operations runs, and
// which insists that everything it is handed lies there. What runs on it would run on a device: no
// code above the seam reads or writes a backend's memory.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace kakeya::guarded {

// Errors: kResourceExhausted if the system does not give the addresses.
Result<std::unique_ptr<Backend>> create_guarded_backend();

}  // namespace kakeya::guarded
