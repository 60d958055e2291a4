#include "backend/cuda/join_outputs.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "backend/cuda/device/plain_outputs.h"
#include "backend/cuda/launch_accesses.h"
#include "backend/cuda/launch_shapes.h"
#include "backend/cuda/strip_launch.h"

namespace kakeya::cuda {
namespace {

class Joining {
 public:
  explicit Joining(FusedLaunches& fused) : fused_(fused), from_(fused.launches) {}

  void run() {
    joined_.resize(from_.size(), SIZE_MAX);
    is_left_out_.resize(from_.size());
    bool changes = false;
    for (std::size_t i = 0; i < from_.size(); ++i) {
      if (from_.kernel(i) != Kernel::plain_expert_output) continue;
      joined_[i] = find_product(i);
      if (joined_[i] == SIZE_MAX) continue;
      is_left_out_[joined_[i]] = true;
      changes = true;
    }
    if (changes) write();
  }

 private:
  // How far before the outputs the product may lie.
  static constexpr std::size_t kMostBefore = 6;

  template <typename Params>
  const Params& parameters(std::size_t i) const {
    return *static_cast<const Params*>(from_.parameters(i));
  }

  // The product that can wait until outputs are made; SIZE_MAX: there is none.
  std::size_t find_product(std::size_t outputs) const {
    LaunchAccesses behind(from_, outputs);
    for (std::size_t i = outputs; i > 0 && outputs - i < kMostBefore; --i) {
      const std::size_t before = i - 1;
      const LaunchAccesses own(from_, before);
      if (own.conflicts_with(behind)) {
        behind.add(own);
        continue;
      }
      if (!is_left_out_[before] && shape_of_both(before, outputs)) return before;
      behind.add(own);
    }
    return SIZE_MAX;
  }

  // The shape of the launch of both, if their blocks are alike.
  std::optional<LaunchShape> shape_of_both(std::size_t product, std::size_t outputs) const {
    if (from_.kernel(product) != Kernel::plain_product) return std::nullopt;
    const auto& p = parameters<device::IntegerProductParams>(product);
    if (p.num_parts != 1 || p.rows.codes == nullptr) return std::nullopt;
    return plan_beside(p, from_.shape(outputs));
  }

  void write() {
    LaunchList to;
    std::vector<std::size_t> moved(from_.size());
    for (std::size_t i = 0; i < from_.size(); ++i) {
      moved[i] = to.size();
      if (joined_[i] != SIZE_MAX) {
        add_both(i, to);
      } else if (!is_left_out_[i]) {
        to.add(from_.kernel(i), from_.shape(i), from_.parameters(i));
      }
    }
    for (std::size_t& place : fused_.places) {
      if (place != SIZE_MAX) place = moved[place];
    }
    fused_.launches = std::move(to);
  }

  void add_both(std::size_t outputs, LaunchList& to) const {
    const auto& product = parameters<device::IntegerProductParams>(joined_[outputs]);
    const device::PlainOutputsParams p = {parameters<device::ExpertOutputParams>(outputs),
                                          product.rows, product.parts[0]};
    to.add(Kernel::plain_outputs, *shape_of_both(joined_[outputs], outputs), &p);
  }

  FusedLaunches& fused_;
  const LaunchList& from_;
  std::vector<std::size_t> joined_;  // of outputs: their product
  std::vector<bool> is_left_out_;
};

}  // namespace

void join_outputs(FusedLaunches& fused) {
  Joining(fused).run();
}

}  // namespace kakeya::cuda
