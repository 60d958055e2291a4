// Counter-based random numbers: a value is a pure function of a key and a counter, so it does not
// depend on how or in what order it was reached.
#pragma once

#include <array>
#include <cstdint>

namespace kakeya {

// Four random 32-bit words for (key, counter). Philox4x32 with 10 rounds: Salmon, Moraes, Dror and
// Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
std::array<std::uint32_t, 4> philox(std::uint64_t key, const std::array<std::uint32_t, 4>& counter);

// A uniform number in (0, 1) from a random word; never 0 or 1.
inline double unit_interval(std::uint32_t word) {
  return (word + 0.5) * 0x1p-32;
}

// A sequence for tests and random weights (SplitMix64). Not counter-based.
class SequenceRng {
 public:
  explicit SequenceRng(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  // Uniform in [0, bound); bound > 0.
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }
  // Uniform in [-1, 1).
  float symmetric() {
    return static_cast<float>(static_cast<std::int64_t>(next() >> 40) - (1 << 23)) * 0x1p-23F;
  }

 private:
  std::uint64_t state_;
};

}  // namespace kakeya
