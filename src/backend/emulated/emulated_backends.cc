#include "backend/emulated/emulated_backends.h"

#include "backend/emulated/emulated_driver.h"
#include "backend/emulated/guarded_backend.h"
#include "backend/registry.h"

namespace kakeya {

void add_emulated_backends() {
  add_backend("guarded", [](const BackendOptions&) { return guarded::create_guarded_backend(); });
  add_backend("cuda-emulated", [](const BackendOptions& options) {
    return cuda::create_emulated_backend({}, options.threads.num_threads);
  });
}

}  // namespace kakeya
