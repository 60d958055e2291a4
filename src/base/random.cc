#include "base/random.h"

namespace kakeya {
namespace {

// Several counters at once: their first elements, their second ones, ...
template <std::size_t kLanes>
using Counters = std::array<std::array<std::uint32_t, kLanes>, 4>;

template <std::size_t kLanes>
void run_rounds(std::uint64_t key, Counters<kLanes>& counters) {
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53;
  constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9;
  constexpr std::uint32_t kWeyl1 = 0xBB67AE85;
  auto key0 = static_cast<std::uint32_t>(key);
  auto key1 = static_cast<std::uint32_t>(key >> 32);
  auto& [c0, c1, c2, c3] = counters;
  for (int round = 0; round < 10; ++round) {
    for (std::size_t i = 0; i < kLanes; ++i) {
      const std::uint64_t product0 = kMultiplier0 * c0[i];
      const std::uint64_t product1 = kMultiplier1 * c2[i];
      c0[i] = static_cast<std::uint32_t>(product1 >> 32) ^ c1[i] ^ key0;
      c1[i] = static_cast<std::uint32_t>(product1);
      c2[i] = static_cast<std::uint32_t>(product0 >> 32) ^ c3[i] ^ key1;
      c3[i] = static_cast<std::uint32_t>(product0);
    }
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
}

}  // namespace

std::array<std::uint32_t, 4> philox(std::uint64_t key,
                                    const std::array<std::uint32_t, 4>& counter) {
  Counters<1> counters = {{{counter[0]}, {counter[1]}, {counter[2]}, {counter[3]}}};
  run_rounds(key, counters);
  return {counters[0][0], counters[1][0], counters[2][0], counters[3][0]};
}

void philox_run(std::uint64_t key,
                const std::array<std::uint32_t, 4>& counter,
                std::array<std::uint32_t, 4 * kPhiloxRun>& words) {
  Counters<kPhiloxRun> counters;
  for (std::size_t i = 0; i < kPhiloxRun; ++i) {
    counters[0][i] = counter[0];
    counters[1][i] = counter[1];
    counters[2][i] = counter[2] + static_cast<std::uint32_t>(i);
    counters[3][i] = counter[3];
  }
  run_rounds(key, counters);
  for (std::size_t i = 0; i < kPhiloxRun; ++i) {
    for (std::size_t word = 0; word < 4; ++word) words[4 * i + word] = counters[word][i];
  }
}

}  // namespace kakeya
