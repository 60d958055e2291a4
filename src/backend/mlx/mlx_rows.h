// Cached rows of keys and values in MLX's operations: coded as tensor/kv_format.h says.
#pragma once

#include <mlx/mlx.h>

#include "tensor/kv_format.h"

namespace kakeya::mlx {

// The element type of the array for a block of rows: f32 and bf16 for those formats, else bytes.
::mlx::core::Dtype dtype_of(KvFormat format);

// Vectors [N, K, E] of f32 as they are stored, [N, K, items]; the bytes of encode_kv(), where
// sums of a rotation are added in the same order.
::mlx::core::array encode_rows(KvFormat format,
                               const ::mlx::core::array& x,
                               ::mlx::core::Stream stream);
// The other way.
::mlx::core::array decode_rows(KvFormat format,
                               const ::mlx::core::array& rows,
                               ::mlx::core::Stream stream);

}  // namespace kakeya::mlx
