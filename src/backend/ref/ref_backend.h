// The reference backend: every operation of the seam in plain loops, f32 data, f64 sums, one
// thread. It is the specification that the fast backends are tested against; slow on purpose.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace kakeya::ref {

// Its memory is `space`, which must outlive it and in which its code can read and write while it
// runs.
std::unique_ptr<Backend> create_ref_backend(MemorySpace& space = MemorySpace::host());

}  // namespace kakeya::ref
