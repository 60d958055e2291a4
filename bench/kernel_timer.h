// Times operations of a backend on rows of its own memory, each beside what the machine reads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "bench/kernel_bench.h"
#include "bench/read_probe.h"

namespace kakeya::bench {

// An operation as it is measured: calls 0, 1, ... have weights of their own, or rows of a cache.
struct KernelCase {
  std::string name;
  int rows = 1;
  double flops = 0.0;  // of a call
  double peak = 0.0;   // GFLOP/s that there could be; 0: nobody knows
  int calls = 1;
  std::function<void(int)> call;
  std::function<double(int)> bytes;  // that a call has to read
};

class KernelTimer {
 public:
  // An executor for what `plan` says. The backend must outlive the timer. Errors: as
  // Backend::create_executor().
  static Result<std::unique_ptr<KernelTimer>> create(Backend& backend,
                                                     const ExecutorPlan& plan,
                                                     double seconds);

  Executor& executor() { return *executor_; }
  MemoryBudget& budget() { return budget_; }

  // Random rows, and those that are made: as many as the plan says, of its widest matrix.
  ConstRows x(std::int64_t rows, std::int64_t width) const {
    return {x_.device<const float>(), rows, width};
  }
  Rows out(std::int64_t rows, std::int64_t width) const {
    return {out_.device<float>(), rows, width};
  }
  // Numbers in the memory where the backend computes.
  template <typename T>
  Result<Buffer> place(const std::vector<T>& values) {
    auto buffer = budget_.allocate(MemoryClass::kActivations, values.size() * sizeof(T), space_);
    if (buffer) upload(space_, std::span<const T>(values), buffer->template device<T>());
    return buffer;
  }

  // Measures the calls for the seconds given, in passes of one segment with these layers from
  // `position` on. The host is timed call by call; a device is handed a pass of many calls.
  Result<KernelResult> measure(const KernelCase& c,
                               std::span<const KvLayer> layers = {},
                               Position position = 0);

 private:
  KernelTimer(Backend& backend, double seconds)
      : space_(backend.memory()), probe_(backend), seconds_(seconds) {}
  // Runs a pass of calls from `first` on, and waits for it. Returns its seconds.
  Result<double> run_pass(const KernelCase& c, const Batch& batch, int first, int count);

  MemorySpace& space_;
  ReadProbe probe_;
  const double seconds_;
  MemoryBudget budget_;
  std::unique_ptr<Executor> executor_;
  Buffer x_;
  Buffer out_;
};

}  // namespace kakeya::bench
