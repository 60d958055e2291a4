// Lists of launches as graphs of the library, which start a kernel in a third of the time. Passes
// of one kind have the same kernels, most of them with what they had last time: their graph is
// kept, and only what differs is set before it is launched again. Where the card can, a kernel
// starts while the one in front of it still runs, and waits by itself (dev.h); those that wait for
// several start when these have ended.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cuda/driver.h"
#include "backend/cuda/libcuda.h"

namespace kakeya::cuda {

// How a card takes launches.
struct CardLaunches {
  bool starts_early = false;  // it has programmatic dependent launch
  // With so much shared memory no two blocks have room on a multiprocessor. 0: nobody knows.
  std::uint32_t spread_bytes = 0;

  std::uint32_t shared_bytes(const LaunchShape& shape) const {
    const std::uint32_t own = shape.shared_words * 4;
    return shape.is_spread ? std::max(own, spread_bytes) : own;
  }
};

// Whoever calls it holds a Turn of the stream.
class LaunchGraphs {
 public:
  // Both must outlive it.
  LaunchGraphs(const libcuda::Table& table, const CardLaunches& card)
      : table_(table), card_(card) {}
  ~LaunchGraphs() { clear(); }
  LaunchGraphs(const LaunchGraphs&) = delete;
  LaunchGraphs& operator=(const LaunchGraphs&) = delete;

  // The functions of all kernels; they allow as much shared memory as is asked for.
  void set_functions(std::span<libcuda::Function* const> functions) {
    functions_.assign(functions.begin(), functions.end());
  }

  // Launches the list as a graph. False if it does not: nothing was launched then. A list is made a
  // graph when it comes for the second time.
  bool launch(const LaunchList& launches, libcuda::Stream* stream);
  // Before the functions are unloaded.
  void clear();

 private:
  struct Kept {
    LaunchList launches;              // as the graph has them
    libcuda::Graph* graph = nullptr;  // null: seen once
    libcuda::ReadyGraph* ready = nullptr;
    std::vector<libcuda::GraphNode*> nodes;
    std::uint64_t last_used = 0;
    // The list that `launches` was last, with its last change then.
    std::uint64_t identity = 0;
    std::uint64_t change = 0;
  };
  // Shorter lists gain nothing.
  static constexpr std::size_t kLeastLaunches = 8;
  // Passes of a model and its drafter are of some kinds: one row or several, many keys or few.
  static constexpr std::size_t kMostKept = 64;

  void keep(const LaunchList& launches);
  bool make(Kept& kept, const LaunchList& launches);
  bool add_node(Kept& kept,
                const libcuda::KernelNode& what,
                std::span<const std::uint32_t> waits_for);
  bool set_what_differs(Kept& kept, const LaunchList& launches);
  void forget(Kept& kept);

  const libcuda::Table& table_;
  const CardLaunches& card_;
  std::vector<libcuda::Function*> functions_;
  std::vector<Kept> kept_;
  std::uint64_t uses_ = 0;
};

}  // namespace kakeya::cuda
