// Which instruction-set units this build has and which of them this machine can run.
#pragma once

#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "kakeya/status.h"

namespace kakeya::cpu {

// Best first; the last one, "portable", runs anywhere.
std::vector<InstructionSetSupport> list_instruction_sets();

// The unit called `name`, or the best one that this machine runs for "auto".
// Errors: kInvalidArgument for an unknown name, kFailedPrecondition if the machine lacks it.
Result<const Kernels*> select_kernels(std::string_view name);

// The unit of the backend "cpu", the best one, or "cpu/avx2" and its like.
// Errors: those of select_kernels(), kInvalidArgument for another backend.
Result<const Kernels*> kernels_of_backend(std::string_view backend);

}  // namespace kakeya::cpu
