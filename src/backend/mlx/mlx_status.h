// Exceptions of MLX as a Status.
#pragma once

#include <exception>
#include <new>

#include "base/status.h"

namespace kakeya::mlx {

// Runs `make`, which may throw as MLX does. Errors: kResourceExhausted, kInternal.
template <typename Make>
auto caught(const Make& make) -> decltype(make()) {
  try {
    return make();
  } catch (const std::bad_alloc&) {
    return error(StatusCode::kResourceExhausted, "MLX has no memory left");
  } catch (const std::exception& exception) {
    return error(StatusCode::kInternal, "MLX: {}", exception.what());
  }
}

}  // namespace kakeya::mlx
