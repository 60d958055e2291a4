// The stand-in for src/backend/mlx/ in a build without MLX.
#include "backend/mlx/mlx_backend.h"
#include "base/status.h"

namespace kakeya::mlx {

std::string_view missing() {
  return "this build was made without MLX; `make mlx` fetches it and builds with it";
}

std::optional<DeviceDescription> gpu() {
  return std::nullopt;
}

Result<std::unique_ptr<Backend>> create_mlx_backend(std::string_view /*device*/) {
  return error(StatusCode::kUnimplemented, "backend mlx is not available: {}", missing());
}

Result<std::unique_ptr<Backend>> create_mlx_kernels_backend() {
  return create_mlx_backend("cpu");
}

Counters counters(const Backend& /*backend*/) {
  return {};
}

}  // namespace kakeya::mlx
