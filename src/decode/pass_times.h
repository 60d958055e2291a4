// Seconds of passes by their size and by the length of the context that they attend to.
#pragma once

#include <array>
#include <cstdint>

#include "kakeya/types.h"

namespace kakeya {

// Every pass corrects its own size, those around it less, and all a little. Other work makes a pass
// slower and never faster, so slow news counts little. One thread at a time; nothing allocates.
class PassTimes {
 public:
  // `first` + `each` * size, in any unit, is what a pass is thought to take before one was seen.
  PassTimes(double first, double each);

  // True once a pass was seen: times are seconds from then on.
  bool is_known() const { return known_; }
  // Seconds of a pass of so many rows or tokens, at least 1; before any was seen, the made-up
  // table.
  double at(std::int64_t size, Position context) const;
  // Passes of about this size and context that were seen.
  int seen(std::int64_t size, Position context) const;
  // Learns that a pass took `seconds`, which must be positive. Returns by what factor all sizes
  // have changed.
  double learn(std::int64_t size, Position context, double seconds);
  // The machine has become slower by this factor.
  void scale(double factor);

 private:
  // Sizes between the nodes lie on lines, those beyond on one through 0.
  static constexpr std::array<std::int64_t, 34> kNodes = {
      1,  2,  3,  4,  5,  6,  7,  8,   9,   10,  11,  12,  13,  14,  15,  16,  20,
      24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024};
  // Contexts below 512, 1024, ... 32768 tokens, and longer ones.
  static constexpr std::size_t kContexts = 8;
  static constexpr Position kShortContext = 512;

  struct Table {
    bool known = false;  // one of its passes was seen
    std::array<double, kNodes.size()> seconds{};
    std::array<int, kNodes.size()> seen{};
  };

  static std::size_t node_of(std::int64_t size);
  static std::size_t index_of(Position context);
  static double at(const Table& table, std::int64_t size);
  // The nearest length of context that was seen; the made-up table if there is none.
  const Table& nearest(std::size_t context) const;

  bool known_ = false;
  Table made_up_;
  std::array<Table, kContexts> contexts_;
};

}  // namespace kakeya
