#include "bench/read_probe.h"

#include <array>
#include <span>
#include <vector>

#include "backend/cpu/probe.h"
#include "base/clock.h"
#include "base/median.h"

namespace kakeya::bench {
namespace {

// Several times the caches of cards.
constexpr std::uint64_t kCopiedBytes = std::uint64_t{512} << 20;
constexpr int kCopies = 4;  // between two looks at the clock
constexpr int kSamples = 3;
constexpr double kSlow = 0.1;  // seconds of a sample: no card's, of which one does

}  // namespace

ReadProbe::ReadProbe(Backend& backend) : memory_(backend.memory()) {
  if (!memory_.is_host()) return;
  pool_ = std::make_unique<ThreadPool>(
      ThreadPoolOptions{.num_threads = backend.num_threads(), .pin = true});
}

double ReadProbe::measure() {
  return pool_ != nullptr ? cpu::measure_read_bandwidth(*pool_) : measure_copies();
}

double ReadProbe::measure_copies() {
  std::byte* const block = memory_.allocate(2 * kCopiedBytes);
  if (block == nullptr) return 0.0;
  const DevicePointer<std::byte> from(block);
  const DevicePointer<std::byte> to = from + static_cast<std::int64_t>(kCopiedBytes);
  memory_.fill(from, std::byte{0}, kCopiedBytes);
  const auto wait = [&] {
    std::array<std::byte, 1> last;
    memory_.download(DevicePointer<const std::byte>(to), last);
  };
  std::vector<double> seconds;
  for (int i = 0; i <= kSamples; ++i) {  // the first one warms up
    wait();
    const Stopwatch watch;
    for (int copy = 0; copy < kCopies; ++copy) memory_.copy(from, to, kCopiedBytes);
    wait();
    if (i > 0) seconds.push_back(watch.seconds());
    if (i > 0 && seconds.back() > kSlow) break;
  }
  memory_.release(block, 2 * kCopiedBytes);
  return 2e-9 * kCopies * static_cast<double>(kCopiedBytes) / median(seconds);
}

}  // namespace kakeya::bench
