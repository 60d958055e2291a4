#include "backend/cuda/join_routes.h"

#include <algorithm>
#include <optional>

#include "backend/cuda/device/early_route.h"
#include "backend/cuda/join_pairs.h"
#include "backend/cuda/launch_shapes.h"

namespace kakeya::cuda {
namespace {

struct EarlyRoute {
  device::EarlyRouteParams params;
  LaunchShape shape;
};

// Launch `i` and the next one as one, if they are a router of one row and its choice.
std::optional<EarlyRoute> router_at(const LaunchList& launches, std::size_t i) {
  if (i + 1 >= launches.size() || launches.kernel(i) != Kernel::early_row_product ||
      launches.kernel(i + 1) != Kernel::route || launches.shape(i + 1).blocks_x != 1) {
    return std::nullopt;
  }
  const device::EarlyRouteParams p = {
      *static_cast<const device::ProductParams*>(launches.parameters(i)),
      *static_cast<const device::RouteParams*>(launches.parameters(i + 1))};
  const bool is_of_both =
      p.route.logits == p.product.out && p.route.num_experts == p.product.weight.rows;
  if (!is_of_both) return std::nullopt;
  LaunchShape shape = launches.shape(i);
  shape.shared_words = std::max(shape.shared_words, launches.shape(i + 1).shared_words);
  return EarlyRoute{p, shape};
}

}  // namespace

void join_routes(FusedLaunches& fused) {
  join_pairs(fused, Kernel::early_route, router_at);
}

}  // namespace kakeya::cuda
