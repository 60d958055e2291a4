#include "backend/emulated/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#define KAKEYA_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KAKEYA_ADDRESS_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define KAKEYA_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KAKEYA_THREAD_SANITIZER 1
#endif
#endif
#if defined(KAKEYA_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(KAKEYA_THREAD_SANITIZER)
#include <sanitizer/tsan_interface.h>
#endif

// Saves what a function must leave as it was, and goes on where `to` stopped.
extern "C" void kakeya_switch_stacks(void** from, void* to) asm("kakeya_switch_stacks");

#if defined(__x86_64__)
asm(R"(
.text
.globl kakeya_switch_stacks
kakeya_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl kakeya_switch_stacks
.p2align 2
kakeya_switch_stacks:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
)");
#endif

namespace kakeya::emulated {
namespace {

constexpr std::size_t kGuard = 16384;  // a whole page anywhere
constexpr std::size_t kStride = FiberStacks::kBytes + kGuard;

// A stack on which kakeya_switch_stacks() finds registers of no meaning and `entry` behind them.
void* first_frame(std::byte* top, void (*entry)()) {
#if defined(__x86_64__)
  // As if called: the stack is aligned but for the address of return.
  auto** const place = reinterpret_cast<void**>(top) - 2;
  place[0] = reinterpret_cast<void*>(entry);
  place[1] = nullptr;
  std::memset(place - 6, 0, 6 * sizeof(void*));
  return place - 6;
#elif defined(__aarch64__)
  auto** const place = reinterpret_cast<void**>(top) - 20;
  std::memset(place, 0, 20 * sizeof(void*));
  place[11] = reinterpret_cast<void*>(entry);
  return place;
#else
#error "kakeya_switch_stacks() is to be written for this processor"
#endif
}

}  // namespace

FiberStacks::~FiberStacks() {
  release();
}

void FiberStacks::release() {
#if defined(KAKEYA_THREAD_SANITIZER)
  for (std::size_t i = 0; i < count_; ++i) {
    if (fibers_[i].sanitizer_fiber != nullptr) __tsan_destroy_fiber(fibers_[i].sanitizer_fiber);
  }
#endif
  if (memory_ != nullptr) ::munmap(memory_, count_ * kStride);
  delete[] fibers_;
  memory_ = nullptr;
  fibers_ = nullptr;
  count_ = 0;
}

bool FiberStacks::reserve(std::size_t count) {
  if (count <= count_) return true;
  release();
  void* memory = ::mmap(nullptr, count * kStride, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  memory_ = static_cast<std::byte*>(memory);
  fibers_ = new Fiber[count];
  count_ = count;
  for (std::size_t i = 0; i < count; ++i) {
    fibers_[i].stack = memory_ + i * kStride + kGuard;
    fibers_[i].stack_bytes = kBytes;
    if (::mprotect(memory_ + i * kStride, kGuard, PROT_NONE) != 0) return false;
  }
  return true;
}

void prepare_fiber(Fiber& fiber, void (*entry)()) {
  auto* const bottom = static_cast<std::byte*>(const_cast<void*>(fiber.stack));
  fiber.stack_pointer = first_frame(bottom + fiber.stack_bytes, entry);
#if defined(KAKEYA_ADDRESS_SANITIZER)
  // Frames that nobody left are still poisoned.
  __asan_unpoison_memory_region(fiber.stack, fiber.stack_bytes);
  fiber.fake_stack = nullptr;
#endif
#if defined(KAKEYA_THREAD_SANITIZER)
  if (fiber.sanitizer_fiber == nullptr) fiber.sanitizer_fiber = __tsan_create_fiber(0);
#endif
}

void enter_fiber([[maybe_unused]] Fiber& from) {
#if defined(KAKEYA_ADDRESS_SANITIZER)
  __sanitizer_finish_switch_fiber(nullptr, &from.stack, &from.stack_bytes);
#endif
}

void switch_fiber(Fiber& from, Fiber& to) {
#if defined(KAKEYA_ADDRESS_SANITIZER)
  __sanitizer_start_switch_fiber(&from.fake_stack, to.stack, to.stack_bytes);
#endif
#if defined(KAKEYA_THREAD_SANITIZER)
  from.sanitizer_fiber = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(to.sanitizer_fiber, 0);
#endif
  kakeya_switch_stacks(&from.stack_pointer, to.stack_pointer);
#if defined(KAKEYA_ADDRESS_SANITIZER)
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

}  // namespace kakeya::emulated
