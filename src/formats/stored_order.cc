#include "formats/stored_order.h"

#include <cstring>

namespace kakeya {

std::vector<std::byte> in_order(const TensorView& stored, std::int64_t head_rows) {
  std::vector<std::byte> bytes(stored.bytes());
  const std::int64_t rows = stored.shape.front();
  const std::size_t row_bytes = bytes.size() / static_cast<std::size_t>(rows);
  for (std::int64_t row = 0; row < rows; ++row) {
    std::memcpy(bytes.data() + static_cast<std::size_t>(row) * row_bytes,
                stored.data + static_cast<std::size_t>(paired_row(row, head_rows)) * row_bytes,
                row_bytes);
  }
  return bytes;
}

}  // namespace kakeya
