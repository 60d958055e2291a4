#include "formats/tied_head.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/status.h"

namespace kakeya {

namespace {

// Compares the numbers of two matrices, however they are coded.
bool are_equal(const TensorView& a, const TensorView& b) {
  if (a.shape != b.shape) return false;
  if (!a.is_quantized() && !b.is_quantized() && a.dtype == b.dtype) {
    return std::memcmp(a.data, b.data, a.bytes()) == 0;
  }
  const std::int64_t columns = a.shape.back();
  std::vector<float> row_of_a(static_cast<std::size_t>(columns));
  std::vector<float> row_of_b(row_of_a.size());
  for (std::int64_t row = 0; row < a.shape.front(); ++row) {
    copy_to_f32(a, row, 0, columns, row_of_a.data());
    copy_to_f32(b, row, 0, columns, row_of_b.data());
    if (row_of_a != row_of_b) return false;
  }
  return true;
}

}  // namespace

Status check_tied_head(const ResolvedTensors& tensors) {
  const TensorView* head = tensors.find("lm_head.weight");
  const TensorView* embedding = tensors.find("embed_tokens.weight");
  if (head == nullptr || embedding == nullptr || are_equal(*head, *embedding)) return {};
  return invalid_argument(
      "lm_head.weight: expected a copy of embed_tokens.weight or nothing, for tie_word_embeddings "
      "is true, got other numbers; with tie_word_embeddings false they are used");
}

}  // namespace kakeya
