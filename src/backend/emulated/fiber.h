// A stack of its own for each emulated thread, and the way from one to another.
#pragma once

#include <cstddef>

namespace kakeya::emulated {

// The place where code stopped that will go on.
struct Fiber {
  void* stack_pointer = nullptr;
  // The stack's lowest address and size; for the thread that runs fibers only what sanitizers tell.
  const void* stack = nullptr;
  std::size_t stack_bytes = 0;
  void* fake_stack = nullptr;       // AddressSanitizer's
  void* sanitizer_fiber = nullptr;  // ThreadSanitizer's
};

// Stacks of fibers, in one piece of addresses, with a page below each that nobody can touch.
class FiberStacks {
 public:
  static constexpr std::size_t kBytes = std::size_t{64} << 10;

  FiberStacks() = default;
  ~FiberStacks();
  FiberStacks(const FiberStacks&) = delete;
  FiberStacks& operator=(const FiberStacks&) = delete;

  // Makes room for at least `count` fibers; false if the system does not give the addresses. Not
  // while one runs.
  bool reserve(std::size_t count);
  Fiber& operator[](std::size_t index) { return fibers_[index]; }

 private:
  void release();

  std::byte* memory_ = nullptr;
  Fiber* fibers_ = nullptr;
  std::size_t count_ = 0;
};

// `entry` will run on the fiber's stack when it is switched to first; it must not return. What ran
// there before is forgotten, without its destructors.
void prepare_fiber(Fiber& fiber, void (*entry)());

// The first thing that an entry does; `from` is who switched to it.
void enter_fiber(Fiber& from);
// Goes on with `to`, until somebody switches back to `from`.
void switch_fiber(Fiber& from, Fiber& to);

}  // namespace kakeya::emulated
