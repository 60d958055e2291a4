#include "cli/internal_engine.h"

#include <utility>

#include "base/status.h"
#include "cli/terminal.h"

namespace kakeya::cli {

Result<std::unique_ptr<EngineImpl>> open_internal_engine(const ModelFlags& flags,
                                                         const BackendWrapper& wrapper) {
  KAKEYA_ASSIGN_OR_RETURN(EngineOptions options, engine_options(flags));
  ProgressBar bar("loading");
  options.on_progress = [&](std::uint64_t done, std::uint64_t total) { bar.update(done, total); };
  return EngineImpl::open(options, wrapper);
}

}  // namespace kakeya::cli
