// Declarations that the files of the stand-in for NVIDIA's library share.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "backend/cuda/fake_libcuda.h"
#include "backend/cuda/libcuda.h"
#include "backend/emulated/emulator.h"
#include "backend/emulated/guarded_space.h"

// As the table asks for them: definitions that differ do not compile.
extern "C" {
#define KAKEYA_FUNCTION(name, symbol, parameters) \
  std::remove_pointer_t<decltype(kakeya::cuda::libcuda::Table::name)> symbol;
KAKEYA_LIBCUDA_FUNCTIONS(KAKEYA_FUNCTION)
#undef KAKEYA_FUNCTION
}

namespace kakeya::cuda::fake {

using guarded::GuardedSpace;
using libcuda::Address;
using libcuda::Code;

inline constexpr Code kSuccess = 0;
inline constexpr Code kInvalidValue = 1;
inline constexpr Code kOutOfMemory = 2;
inline constexpr Code kNotInitialized = 3;
inline constexpr Code kNoDevice = 100;
inline constexpr Code kInvalidDevice = 101;
inline constexpr Code kInvalidImage = 200;
inline constexpr Code kInvalidContext = 201;
inline constexpr Code kNotFound = 500;
inline constexpr Code kIllegalAddress = 700;
inline constexpr Code kOutOfResources = 701;
inline constexpr Code kContextInUse = 708;

struct Settings {
  std::int64_t devices = 1;
  std::int64_t driver = 13000;
  std::int64_t capability = 90;
  std::int64_t memory = std::int64_t{8} << 30;
  std::int64_t fail_allocation = 0;
  std::int64_t fail_launch = 0;
  std::int64_t fault_launch = 0;
  std::int64_t eager = 0;

  // From the environment.
  static Settings read();
};

class Memory final : public emulated::DeviceMemory {
 public:
  emulated::Bounds bounds_of(const void* address) const override {
    const std::span<const std::byte> piece = pages_->piece_of(address);
    if (piece.empty()) return pinned_bounds(address);
    const auto begin = reinterpret_cast<std::uintptr_t>(piece.data());
    return {begin, begin + piece.size()};
  }
  GuardedSpace& pages() const { return *pages_; }
  bool holds(Address address, std::size_t bytes) const {
    return pages_->holds(reinterpret_cast<const void*>(address), bytes);
  }

  std::map<const void*, std::size_t> pinned;  // where host memory begins, and its bytes

 private:
  emulated::Bounds pinned_bounds(const void* address) const {
    const auto behind = pinned.upper_bound(address);
    if (behind == pinned.begin()) return {};
    const auto begin = reinterpret_cast<std::uintptr_t>(std::prev(behind)->first);
    const auto end = begin + std::prev(behind)->second;
    return reinterpret_cast<std::uintptr_t>(address) < end ? emulated::Bounds{begin, end}
                                                           : emulated::Bounds{};
  }
  const std::unique_ptr<GuardedSpace> pages_ = GuardedSpace::create().value();
};

// Handles are addresses of these.
struct Handle {
  bool is_there = false;
};

struct KernelHandle {
  Kernel kernel = {};
  int shared_bytes = 48 << 10;
};

struct NodeHandle {
  libcuda::KernelNode what;
  std::vector<std::byte> parameters;
  std::vector<std::size_t> waits_for;  // other nodes, all before it
};

struct GraphHandle {
  std::vector<std::unique_ptr<NodeHandle>> nodes;
};

// Nodes are those of the graph that it was made of.
struct ReadyGraphHandle {
  std::vector<const NodeHandle*> nodes;
  std::vector<NodeHandle> now;
};

// How a copy is counted.
struct Copy {
  std::int64_t Record::*kind;
  const void* host = nullptr;
};

struct Library {
  std::mutex mutex;
  bool started = false;
  Settings settings;
  Record record;
  Memory memory;
  emulated::Emulator emulator{memory, 1};
  std::int64_t retained = 0;
  Handle context;
  std::array<Handle, 8> streams;
  std::array<Handle, 8> modules;
  std::array<KernelHandle, std::size(kKernelNames)> kernels;
  std::vector<std::function<Code()>> work;  // put off
  bool asked = false;                       // whether it is done, which it was not then
  std::int64_t tried_allocations = 0;       // since cuInit()
  std::int64_t tried_launches = 0;
  Code failure = kSuccess;  // of the context; it stays

  Code misuse(Code code, const std::string& what) {
    ++record.misuses;
    std::snprintf(record.misuse, sizeof(record.misuse), "%s", what.c_str());
    return code;
  }
  void count(const Copy& copy, std::size_t bytes) {
    ++(record.*copy.kind);
    if (copy.host == nullptr) return;
    const emulated::Bounds piece = memory.bounds_of(copy.host);
    if (reinterpret_cast<std::uintptr_t>(copy.host) + bytes > piece.end) ++record.pageable;
  }
  void run_all() {
    for (const auto& piece : work) {
      if (failure == kSuccess) failure = piece();
    }
    work.clear();
  }
};

Library& library();

// Those that the thread has pushed.
std::vector<libcuda::Context*>& contexts();

// A call that needs a context.
class Call {
 public:
  explicit Call(const char* name) : lock_(library().mutex) {
    ++library().record.calls;
    code_ = library().failure;
    if (contexts().empty() || !library().context.is_there) {
      code_ = library().misuse(kInvalidContext, fmt::format("{} without a context", name));
    }
  }
  Code code() const { return code_; }
  bool fails() const { return code_ != kSuccess; }

 private:
  const std::lock_guard<std::mutex> lock_;
  Code code_ = kSuccess;
};

bool is_stream(const libcuda::Stream* stream);
// The parameters that a kernel is handed, which the library copies.
std::vector<std::byte> handed_to(const KernelHandle& kernel, void** parameters);
// Checks a launch as a card would, and puts it off.
Code put_kernel_off(const libcuda::KernelNode& what, std::vector<std::byte> handed);

}  // namespace kakeya::cuda::fake
