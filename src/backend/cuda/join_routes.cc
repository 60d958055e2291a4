#include "backend/cuda/join_routes.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "backend/cuda/device/early_route.h"
#include "backend/cuda/launch_shapes.h"

namespace kakeya::cuda {
namespace {

// Launch `i` and the next one as one, if they are a router of one row and its choice.
std::optional<device::EarlyRouteParams> router_at(const LaunchList& launches, std::size_t i) {
  if (i + 1 >= launches.size() || launches.kernel(i) != Kernel::early_row_product ||
      launches.kernel(i + 1) != Kernel::route || launches.shape(i + 1).blocks_x != 1) {
    return std::nullopt;
  }
  const device::EarlyRouteParams p = {
      *static_cast<const device::ProductParams*>(launches.parameters(i)),
      *static_cast<const device::RouteParams*>(launches.parameters(i + 1))};
  const bool is_of_both =
      p.route.logits == p.product.out && p.route.num_experts == p.product.weight.rows;
  return is_of_both ? std::optional(p) : std::nullopt;
}

}  // namespace

void join_routes(FusedLaunches& fused) {
  const LaunchList& from = fused.launches;
  LaunchList to;
  std::vector<std::size_t> moved(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    moved[i] = to.size();
    const auto both = router_at(from, i);
    if (!both) {
      to.add(from.kernel(i), from.shape(i), from.parameters(i));
      continue;
    }
    LaunchShape shape = from.shape(i);
    shape.shared_words = std::max(shape.shared_words, from.shape(i + 1).shared_words);
    to.add(Kernel::early_route, shape, &*both);
    moved[++i] = to.size() - 1;
  }
  for (std::size_t& place : fused.places) {
    if (place != SIZE_MAX) place = moved[place];
  }
  fused.launches = std::move(to);
}

}  // namespace kakeya::cuda
