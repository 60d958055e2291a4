#include "backend/cpu/probe.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "base/clock.h"
#include "base/memory_budget.h"

namespace kakeya::cpu {
namespace {

using Clock = std::chrono::steady_clock;

// Four streams as long as a panel of 2816 columns: a power of two would make them compete for the
// same cache sets.
constexpr Index kStreams = 4;
constexpr Index kProbedItemBytes = kStreams * 90112;
constexpr Index kLine = 64;
constexpr Index kAhead = 4096;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::uint64_t sum_line(const std::byte* line) {
  std::uint64_t words[kLine / 8];
  std::memcpy(words, line, sizeof(words));
  std::uint64_t sum = 0;
  for (const std::uint64_t word : words) sum += word;
  return sum;
}

// Sums an item as kStreams interleaved streams, with the kernels' own prefetch distance.
std::uint64_t read_item(const std::byte* item) {
  constexpr Index kStream = kProbedItemBytes / kStreams;
  std::uint64_t sum = 0;
  for (Index at = 0; at < kStream; at += kLine) {
    for (Index stream = 0; stream < kStreams; ++stream) {
      const std::byte* line = item + stream * kStream + at;
      __builtin_prefetch(line + kAhead);
      sum += sum_line(line);
    }
  }
  return sum;
}

double measure_peak(ThreadPool& pool, double (*loop)(Index), double seconds) {
  constexpr Index kRounds = 200000;
  const Index items = 8 * pool.num_threads();
  double best = 0.0;
  const Clock::time_point begin = Clock::now();
  for (int pass = 0; pass < 3 || seconds_since(begin) < seconds; ++pass) {
    std::atomic<double> operations{0.0};
    const Clock::time_point start = Clock::now();
    pool.parallel_for(items, [&](Index) { operations.fetch_add(loop(kRounds)); });
    best = std::max(best, operations.load() / seconds_since(start) * 1e-9);
  }
  return best;
}

}  // namespace

std::size_t last_level_cache_bytes() {
#if defined(_SC_LEVEL3_CACHE_SIZE)
  const long bytes = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  return bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
#else
  return 0;
#endif
}

double measure_read_bandwidth(ThreadPool& pool, double seconds) {
  const std::size_t wanted =
      std::max<std::size_t>(std::size_t{512} << 20, 4 * last_level_cache_bytes());
  const Index items = static_cast<Index>(wanted) / kProbedItemBytes;
  MemoryBudget budget;
  auto buffer = budget.allocate(MemoryClass::kActivations,
                                static_cast<std::uint64_t>(items * kProbedItemBytes));
  if (!buffer) return 0.0;
  std::byte* const data = buffer->data();
  pool.parallel_for(items, [&](Index item) {
    std::memset(data + item * kProbedItemBytes, static_cast<int>(item % 251), kProbedItemBytes);
  });
  std::atomic<std::uint64_t> sum{0};
  // Passes in a fixed array: the median of many short ones tells more than one long one.
  constexpr int kMostPasses = 64;
  double speeds[kMostPasses] = {};
  int passes = 0;
  const Clock::time_point begin = Clock::now();
  for (; passes < 3 || (passes < kMostPasses && seconds_since(begin) < seconds); ++passes) {
    const Clock::time_point start = Clock::now();
    pool.parallel_for(items, [&](Index item) { sum += read_item(data + item * kProbedItemBytes); });
    speeds[passes] = static_cast<double>(items * kProbedItemBytes) / seconds_since(start) * 1e-9;
  }
  std::nth_element(speeds, speeds + passes / 2, speeds + passes);
  volatile std::uint64_t sink = sum.load();  // the reads must not be dropped
  (void)sink;
  return speeds[passes / 2];
}

double measure_f32_peak(ThreadPool& pool, const Kernels& kernels, double seconds) {
  return measure_peak(pool, kernels.f32_peak, seconds);
}

double measure_bf16_peak(ThreadPool& pool, const Kernels& kernels, double seconds) {
  return measure_peak(pool, kernels.bf16_peak, seconds);
}

double measure_cycle_seconds() {
#if defined(__x86_64__)
  constexpr int kSteps = 20000;
  constexpr int kCycles = 4 * 3;
  const ThreadTime time;
  std::uint64_t x = 3;
  for (int i = 0; i < kSteps; ++i) {
    // Written out: the compiler would make fewer multiplications of them.
    asm volatile("imul %0, %0\n\timul %0, %0\n\timul %0, %0\n\timul %0, %0" : "+r"(x));
  }
  return time.seconds() / (kSteps * kCycles);
#else
  return 0.0;
#endif
}

}  // namespace kakeya::cpu
