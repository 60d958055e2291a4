// Operations on rows of which MLX's CPU device makes many primitives: here one each, whose loops
// are this backend's own. Inputs have any shape; a row is so many numbers as they follow one
// another.
#pragma once

#include <mlx/mlx.h>

#include <cstdint>
#include <optional>

#include "backend/backend.h"

namespace kakeya::mlx {

// Rows of `width`: x / sqrt(mean(x^2) + eps) * weight [width].
::mlx::core::array fused_rms_norm(const ::mlx::core::array& x,
                                  const std::optional<::mlx::core::array>& weight,
                                  std::int64_t width,
                                  float eps,
                                  ::mlx::core::Stream stream);

// Vectors of 2 * half numbers, turned by angles whose cosines and sines are [T, half] each: one row
// of them for as many neighbouring vectors as there are for each.
::mlx::core::array fused_rotation(const ::mlx::core::array& x,
                                  const ::mlx::core::array& cos,
                                  const ::mlx::core::array& sin,
                                  std::int64_t half,
                                  ::mlx::core::Stream stream);

// activation(gate) * other, of equal shapes.
::mlx::core::array fused_gate(GateActivation activation,
                              const ::mlx::core::array& gate,
                              const ::mlx::core::array& other,
                              ::mlx::core::Stream stream);

// Row t: the sum over ranks r, ascending, of factors [T, R] times rows x [T, R, ..., width].
::mlx::core::array fused_weighted_sum(const ::mlx::core::array& x,
                                      const ::mlx::core::array& factors,
                                      std::int64_t width,
                                      ::mlx::core::Stream stream);

// (a + b) * scale, of equal shapes.
::mlx::core::array fused_add(const ::mlx::core::array& a,
                             const ::mlx::core::array& b,
                             float scale,
                             ::mlx::core::Stream stream);

struct Routes {
  ::mlx::core::array experts;  // uint32 [T, K], best first; of equal ones the lower id
  ::mlx::core::array weights;  // f32 [T, K]
};
// The top_k largest of each row of logits [T, E], and the softmax over them alone, times the
// scales [E] of the chosen.
Routes fused_route(const ::mlx::core::array& logits,
                   const ::mlx::core::array& scales,
                   std::int64_t top_k,
                   ::mlx::core::Stream stream);

}  // namespace kakeya::mlx
