// Memory of the stand-in's card and of its host, and copies, which are put off.
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <utility>

#include "backend/cuda/fake_libcuda.h"
#include "backend/fake_library.h"

namespace kakeya::cuda::fake {
namespace {

DevicePointer<std::byte> pointer(Address address) {
  return DevicePointer<std::byte>(reinterpret_cast<std::byte*>(address));
}

// Puts a copy off.
Code put_off(const char* name,
             const libcuda::Stream* stream,
             std::initializer_list<Address> places,
             std::size_t bytes,
             Copy copy,
             std::function<void()> work) {
  const Call call(name);
  library().count(copy, bytes);
  if (call.fails()) return call.code();
  Library& lib = library();
  for (const Address place : places) {
    if (bytes == 0 || !lib.memory.holds(place, bytes)) {
      return lib.misuse(kInvalidValue, fmt::format("{} beyond an allocation", name));
    }
  }
  if (!is_stream(stream)) return lib.misuse(kInvalidValue, fmt::format("{}: no stream", name));
  lib.work.emplace_back([work = std::move(work)] {
    work();
    return kSuccess;
  });
  return kSuccess;
}

}  // namespace
}  // namespace kakeya::cuda::fake

using namespace kakeya;              // NOLINT
using namespace kakeya::cuda;        // NOLINT
using namespace kakeya::cuda::fake;  // NOLINT
using libcuda::Address;
using libcuda::Code;

extern "C" {

Code cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  const Call call("cuMemGetInfo");
  if (call.fails()) return call.code();
  *total = static_cast<std::size_t>(library().settings.memory);
  *free = *total - static_cast<std::size_t>(library().record.bytes);
  return kSuccess;
}

Code cuMemAlloc_v2(Address* address, std::size_t bytes) {
  const Call call("cuMemAlloc");
  if (call.fails()) return call.code();
  Library& lib = library();
  if (bytes == 0) return lib.misuse(kInvalidValue, "allocates nothing");
  if (++lib.tried_allocations == lib.settings.fail_allocation) return kOutOfMemory;
  if (lib.record.bytes + bytes > static_cast<std::uint64_t>(lib.settings.memory)) {
    return kOutOfMemory;
  }
  std::byte* const memory = lib.memory.pages().allocate(bytes);
  if (memory == nullptr) return kOutOfMemory;
  lib.memory.pages().fill(DevicePointer(memory), std::byte{0xff}, bytes);
  lib.record.bytes += bytes;
  ++lib.record.allocations;
  *address = reinterpret_cast<std::uintptr_t>(memory);
  return kSuccess;
}

Code cuMemAllocHost_v2(void** memory, std::size_t bytes) {
  const Call call("cuMemAllocHost");
  if (call.fails()) return call.code();
  *memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (*memory == nullptr) return kOutOfMemory;
  ++library().record.objects;
  library().memory.pinned[*memory] = bytes;
  return kSuccess;
}

Code cuMemFreeHost(void* memory) {
  const Call call("cuMemFreeHost");
  if (call.code() == kInvalidContext) return call.code();
  Library& lib = library();
  if (!lib.work.empty() && lib.failure == kSuccess) {
    lib.misuse(kSuccess, "releases host memory that copies may still read");
  }
  std::free(memory);
  lib.memory.pinned.erase(memory);
  --lib.record.objects;
  return kSuccess;
}

// Also of a context that failed, which the library would refuse: it is all gone then.
Code cuMemFree_v2(Address address) {
  const Call call("cuMemFree");
  if (call.code() == kInvalidContext) return call.code();
  Library& lib = library();
  const auto piece = lib.memory.pages().piece_of(reinterpret_cast<const void*>(address));
  if (piece.empty() || reinterpret_cast<std::uintptr_t>(piece.data()) != address) {
    return lib.misuse(kInvalidValue, "releases what is not allocated");
  }
  if (!lib.work.empty() && lib.failure == kSuccess) {
    lib.misuse(kSuccess, "releases what work may still use");
  }
  lib.record.bytes -= piece.size();
  ++lib.record.releases;
  lib.memory.pages().release(const_cast<std::byte*>(piece.data()), piece.size());
  return call.code();
}

Code cuMemcpyHtoDAsync_v2(Address to,
                          const void* from,
                          std::size_t bytes,
                          libcuda::Stream* stream) {
  return put_off("cuMemcpyHtoD", stream, {to}, bytes, {&Record::uploads, from}, [=] {
    library().memory.pages().upload({static_cast<const std::byte*>(from), bytes}, pointer(to));
  });
}

Code cuMemcpyDtoHAsync_v2(void* to, Address from, std::size_t bytes, libcuda::Stream* stream) {
  return put_off("cuMemcpyDtoH", stream, {from}, bytes, {&Record::downloads, to}, [=] {
    library().memory.pages().download(pointer(from), {static_cast<std::byte*>(to), bytes});
  });
}

Code cuMemcpyDtoDAsync_v2(Address to, Address from, std::size_t bytes, libcuda::Stream* stream) {
  if (to < from + bytes && from < to + bytes) {
    return library().misuse(kInvalidValue, "copies between pieces that overlap");
  }
  return put_off("cuMemcpyDtoD", stream, {to, from}, bytes, {&Record::copies},
                 [=] { library().memory.pages().copy(pointer(from), pointer(to), bytes); });
}

Code cuMemsetD8Async(Address to, unsigned char value, std::size_t bytes, libcuda::Stream* stream) {
  return put_off("cuMemsetD8", stream, {to}, bytes, {&Record::copies}, [=] {
    library().memory.pages().fill(pointer(to), static_cast<std::byte>(value), bytes);
  });
}

}  // extern "C"
