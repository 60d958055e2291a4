#include "bench/kernel_timer.h"

#include <algorithm>
#include <random>

#include "base/clock.h"
#include "base/median.h"
#include "base/status.h"

namespace kakeya::bench {
namespace {

// Calls of a device's pass, at least: launching it and waiting for it is not what is measured.
constexpr int kCallsOfPass = 16;
// Passes before the first one that counts: a device makes a graph of the second one that is alike.
constexpr int kWarmUps = 3;
constexpr std::size_t kLeastTimes = 5;

std::vector<float> random_floats(std::size_t count) {
  std::mt19937 generator(7);
  std::uniform_real_distribution<float> uniform(-1.0F, 1.0F);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(generator);
  return values;
}

}  // namespace

Result<std::unique_ptr<KernelTimer>> KernelTimer::create(Backend& backend,
                                                         const ExecutorPlan& plan,
                                                         double seconds) {
  std::unique_ptr<KernelTimer> timer(new KernelTimer(backend, seconds));
  KAKEYA_ASSIGN_OR_RETURN(timer->executor_, backend.create_executor(plan, timer->budget_));
  const auto count = static_cast<std::size_t>(plan.max_rows * plan.max_matmul_width);
  KAKEYA_ASSIGN_OR_RETURN(timer->x_, timer->place(random_floats(count)));
  KAKEYA_ASSIGN_OR_RETURN(timer->out_, timer->place(std::vector<float>(count)));
  return timer;
}

Result<double> KernelTimer::run_pass(const KernelCase& c,
                                     const Batch& batch,
                                     int first,
                                     int count) {
  const Stopwatch watch;
  executor_->begin(batch);
  for (int i = 0; i < count; ++i) c.call((first + i) % c.calls);
  KAKEYA_TRY(executor_->end({}));
  float made = 0.0F;
  download(space_, out_.device<const float>(), std::span(&made, 1));
  const double seconds = watch.seconds();
  KAKEYA_TRY(space_.status());
  return seconds;
}

Result<KernelResult> KernelTimer::measure(const KernelCase& c,
                                          std::span<const KvLayer> layers,
                                          Position position) {
  const BatchBuilder batch = BatchBuilder::one_of_rows(c.rows, position, layers);
  const int count = space_.is_host() ? 1 : std::max(c.calls, kCallsOfPass);
  const double bandwidth = probe_.measure();
  int passes = 0;
  const auto run = [&] { return run_pass(c, batch.batch(), count * passes++, count); };
  while (passes < kWarmUps) KAKEYA_TRY(run());
  std::vector<double> times;
  double bytes = 0.0;
  for (const Stopwatch watch; times.size() < kLeastTimes || watch.seconds() < seconds_;) {
    for (int i = 0; i < count; ++i) bytes += c.bytes((count * passes + i) % c.calls);
    KAKEYA_ASSIGN_OR_RETURN(const double seconds, run());
    times.push_back(seconds / count);
  }
  const double seconds = median(times);
  KernelResult result;
  result.name = c.name;
  result.rows = c.rows;
  result.milliseconds = seconds * 1e3;
  result.bytes = bytes / static_cast<double>(count * std::ssize(times));
  result.gigabytes_per_second = result.bytes / seconds * 1e-9;
  if (bandwidth > 0.0) result.bandwidth_percent = 100.0 * result.gigabytes_per_second / bandwidth;
  result.gflops = c.flops / seconds * 1e-9;
  if (c.peak > 0.0) result.peak_percent = 100.0 * result.gflops / c.peak;
  return result;
}

}  // namespace kakeya::bench
