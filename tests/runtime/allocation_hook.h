// The memory that a program that links allocation_hook.cc has taken from the system, byte for byte:
// malloc, operator new, which calls it, the aligned family and mmap. For tests of memory; a program
// with sanitizers, which replace malloc too, cannot have it.
#pragma once

#include <atomic>
#include <cstdint>

namespace kakeya::test {

// Calls that allocate.
extern std::atomic<std::int64_t> allocations;
// Live bytes of posix_memalign, which buffers of the ledger come from, as requested: the ledger is
// compared with them by equality.
extern std::atomic<std::int64_t> buffer_bytes;
// Live bytes of every other allocation, as malloc_usable_size() has them: free() does not know what
// was requested. A block's usable size is never less than that.
extern std::atomic<std::int64_t> heap_bytes;
// Live bytes of mmap: memory, and files that are only read. What malloc itself maps, and stacks of
// threads, do not pass here: the C library maps them by an internal name.
extern std::atomic<std::int64_t> anonymous_bytes;
extern std::atomic<std::int64_t> file_bytes;

}  // namespace kakeya::test
