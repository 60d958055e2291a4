// Invariants of our own code. A failed check prints the condition and aborts, so it must never be
// reachable from a user's file, prompt or flag: those return a Status.
#pragma once

namespace kakeya {

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace kakeya

#define KAKEYA_CHECK(condition) \
  ((condition) ? (void)0 : ::kakeya::check_failed(#condition, __FILE__, __LINE__))

// For hot loops: checked in debug builds only.
#ifdef NDEBUG
#define KAKEYA_DCHECK(condition) (void)0
#else
#define KAKEYA_DCHECK(condition) KAKEYA_CHECK(condition)
#endif
