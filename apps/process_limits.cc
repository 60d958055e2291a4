#include "process_limits.h"

#include <sys/resource.h>

#include <algorithm>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace kakeya::cli {

void give_memory_back() {
#ifdef __GLIBC__
  ::mallopt(M_MMAP_THRESHOLD, 128 << 10);
  ::mallopt(M_ARENA_MAX, 2);
#endif
}

void raise_descriptor_limit() {
  constexpr rlim_t kEnough = 16'384;
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kEnough) return;
  limit.rlim_cur = std::min(limit.rlim_max, kEnough);
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));  // the server does with what there is
}

}  // namespace kakeya::cli
