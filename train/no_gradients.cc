// Training with gradients in a build without MLX.
#include "base/status.h"
#include "refinement.h"
#include "train_drafter.h"

namespace kakeya::train {

Result<DrafterReport> train_drafter(const DrafterTraining& /*training*/,
                                    const DescribeDrafter& /*describe*/) {
  return error(
      StatusCode::kUnimplemented,
      "drafters are trained on MLX, which this build is without: `make mlx` fetches it and "
      "builds with it");
}

RefineProjection projection_refiner() {
  return {};
}

}  // namespace kakeya::train
