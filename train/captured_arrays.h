// Captured rows as MLX's arrays, and what a projection makes of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "captured_rows.h"
#include "projection_losses.h"

namespace kakeya::train {

enum class FirstRows : std::uint8_t {
  kLeftOut,
  kAsTheyAre,  // what was made of them is what they are: sessions keep these rows
};

// The rows that `matrices` make of a document's features, beside its own. Matrices are those of
// ProjectionMatrices, in its order; `first`: number of the first row that is made. Throws as MLX
// does.
std::vector<LayerRows> make_layer_rows(const CapturePlan& plan,
                                       const CapturedDocument& document,
                                       const std::vector<mx::array>& matrices,
                                       std::int64_t first,
                                       FirstRows first_rows);

// The attention of a document's layers, which starts at position 0; `parts`: of the plan's layers.
// Each layer has its own window. Throws as MLX does.
std::vector<LayerAttention> make_layer_attention(const CapturePlan& plan,
                                                 const CapturedDocument& document,
                                                 std::span<const OutputPart> parts);

}  // namespace kakeya::train
