// The progress of a training while it runs.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "cli/output.h"

namespace kakeya::train {

// A line of standard error every few seconds, and at the end of a stage.
class ProgressLines {
 public:
  void update(std::string_view stage, std::int64_t done, std::int64_t total) {
    if (stage != stage_) {
      stage_ = stage;
      clock_ = {};
      printed_ = 0.0;
    }
    const double seconds = clock_.seconds();
    if (done < total && seconds < printed_ + kSeconds) return;
    printed_ = seconds;
    const double left = seconds * static_cast<double>(total - done) /
                        static_cast<double>(std::max<std::int64_t>(done, 1));
    cli::print_error("{}: {} of {}, {:.0f} s{}\n", stage, done, total, seconds,
                     done < total ? fmt::format(", about {:.0f} s left", std::ceil(left)) : "");
  }

 private:
  static constexpr double kSeconds = 5.0;

  std::string stage_;
  Stopwatch clock_;
  double printed_ = 0.0;
};

}  // namespace kakeya::train
