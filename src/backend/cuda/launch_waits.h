// Which launches of a pass may run beside each other.
#pragma once

#include "backend/cuda/driver.h"

namespace kakeya::cuda {

// Has each launch wait for those alone that wrote what it touches, or touch what it writes.
void set_waits(LaunchList& launches);

}  // namespace kakeya::cuda
