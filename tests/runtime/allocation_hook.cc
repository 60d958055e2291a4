// Replaces malloc and friends by ones that count. See allocation_hook.h.
#include "runtime/allocation_hook.h"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

#include "base/memory_budget.h"

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* data, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void __libc_free(void* data);
}

namespace kakeya::test {

std::atomic<std::int64_t> allocations{0};
std::atomic<std::int64_t> buffer_bytes{0};
std::atomic<std::int64_t> heap_bytes{0};
std::atomic<std::int64_t> anonymous_bytes{0};
std::atomic<std::int64_t> file_bytes{0};

}  // namespace kakeya::test

namespace {

using namespace kakeya::test;

// The size of one of the few blocks of which free() and munmap() need to know it.
struct Entry {
  std::atomic<void*> data{nullptr};
  std::atomic<std::size_t> size{0};
};
Entry buffers[4096];
Entry anonymous_maps[256];
Entry file_maps[256];

template <std::size_t count>
void remember(Entry (&entries)[count],
              std::atomic<std::int64_t>& total,
              void* data,
              std::size_t size) {
  for (Entry& entry : entries) {
    void* empty = nullptr;
    if (!entry.data.compare_exchange_strong(empty, data)) continue;
    entry.size = size;
    total += static_cast<std::int64_t>(size);
    return;
  }
  std::abort();
}

// False if it is not among them.
template <std::size_t count>
bool forget(Entry (&entries)[count], std::atomic<std::int64_t>& total, void* data) {
  for (Entry& entry : entries) {
    if (entry.data.load() != data) continue;
    total -= static_cast<std::int64_t>(entry.size.load());
    entry.data = nullptr;
    return true;
  }
  return false;
}

bool may_be_buffer(void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % kakeya::Buffer::kAlignment == 0;
}

void* count_heap(void* data) {
  ++allocations;
  heap_bytes += static_cast<std::int64_t>(::malloc_usable_size(data));
  return data;
}

void release(void* data) {
  if (data == nullptr) return;
  if (may_be_buffer(data) && forget(buffers, buffer_bytes, data)) return;
  heap_bytes -= static_cast<std::int64_t>(::malloc_usable_size(data));
}

}  // namespace

extern "C" {
void* malloc(std::size_t size) {
  return count_heap(__libc_malloc(size));
}
void* calloc(std::size_t count, std::size_t size) {
  return count_heap(__libc_calloc(count, size));
}
void* realloc(void* data, std::size_t size) {
  release(data);
  return count_heap(__libc_realloc(data, size));
}
void* memalign(std::size_t alignment, std::size_t size) {
  return count_heap(__libc_memalign(alignment, size));
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  return count_heap(__libc_memalign(alignment, size));
}
int posix_memalign(void** data, std::size_t alignment, std::size_t size) {
  ++allocations;
  *data = __libc_memalign(alignment, size);
  if (*data == nullptr) return ENOMEM;
  remember(buffers, buffer_bytes, *data, size);
  return 0;
}
void free(void* data) {
  release(data);
  __libc_free(data);
}
void* mmap(void* address, std::size_t size, int protection, int flags, int file, off_t offset) {
  ++allocations;
  const long mapped = ::syscall(SYS_mmap, address, size, protection, flags, file, offset);
  void* data = reinterpret_cast<void*>(mapped);
  if (data == MAP_FAILED) return data;
  const bool memory = (flags & MAP_ANONYMOUS) != 0 || (protection & PROT_WRITE) != 0;
  if (memory) {
    remember(anonymous_maps, anonymous_bytes, data, size);
  } else {
    remember(file_maps, file_bytes, data, size);
  }
  return data;
}
int munmap(void* data, std::size_t size) {
  if (!forget(anonymous_maps, anonymous_bytes, data)) forget(file_maps, file_bytes, data);
  return static_cast<int>(::syscall(SYS_munmap, data, size));
}
}
