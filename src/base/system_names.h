// Names of things that Linux and macOS name differently.
#pragma once

#include <sys/mman.h>
#include <sys/stat.h>

#include <cstddef>
#include <ctime>

namespace kakeya {

#ifdef __APPLE__
inline timespec modified_at(const struct stat& info) {
  return info.st_mtimespec;
}
inline timespec changed_at(const struct stat& info) {
  return info.st_ctimespec;
}
#else
inline timespec modified_at(const struct stat& info) {
  return info.st_mtim;
}
inline timespec changed_at(const struct stat& info) {
  return info.st_ctim;
}
#endif

// Asks for large pages behind whole pages of memory. Advice only: failure costs speed, not truth.
inline void advise_huge_pages([[maybe_unused]] void* begin, [[maybe_unused]] std::size_t bytes) {
#ifdef MADV_HUGEPAGE
  ::madvise(begin, bytes, MADV_HUGEPAGE);
#endif
}

}  // namespace kakeya
