// The most that a pass may read, beside what a probe of the memory read.
#pragma once

namespace kakeya::eval {

// A probe reads what it reads while others use the memory, too: a sample beside it may be faster.
// The fastest of the reports that are kept has 1.04 times the probe's rate.
inline constexpr double kMostOfProbe = 1.3;
// Less than caches hold is read from there, some of it: that of the demo model has 1.9 times.
inline constexpr double kMostOfProbeInCaches = 2.0;
inline constexpr double kBytesOfCaches =
    256.0 * 1024 * 1024;  // the largest ones of one processor, about

// The most times the probe's rate at which a pass may read so many bytes.
inline double most_of_probe(double bytes) {
  return bytes < kBytesOfCaches ? kMostOfProbeInCaches : kMostOfProbe;
}

}  // namespace kakeya::eval
