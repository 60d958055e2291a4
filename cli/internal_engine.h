// The engine from inside, for commands that measure or compare what users cannot reach.
#pragma once

#include <memory>

#include "cli/command.h"
#include "runtime/engine_impl.h"

namespace kakeya::cli {

// As open_engine(). `wrapper`: as EngineImpl::open.
Result<std::unique_ptr<EngineImpl>> open_internal_engine(const ModelFlags& flags,
                                                         const BackendWrapper& wrapper = {});

}  // namespace kakeya::cli
