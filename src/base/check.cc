#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace kakeya {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "kakeya: internal error: %s does not hold (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace kakeya
