// The body of multiply_tiles(), in the namespace KAKEYA_TWIN_KIND, with the intrinsics as they are
// where it is included.
#include "twin/instruction_programs.h"

namespace kakeya::twin::KAKEYA_TWIN_KIND {

void multiply_tiles(TileProduct product,
                    int rows,
                    int groups,
                    int columns,
                    const std::byte* a,
                    const std::byte* b,
                    std::byte* sums) {
  alignas(64) unsigned char config[64] = {1};
  const auto shape = [&](int tile, int tile_rows, int row_bytes) {
    config[48 + tile] = static_cast<unsigned char>(tile_rows);
    config[16 + 2 * tile] = static_cast<unsigned char>(row_bytes);
  };
  shape(0, rows, 4 * columns);
  shape(1, rows, 4 * groups);
  shape(2, groups, 4 * columns);
  // The compiler does not know what the instructions read.
  asm volatile("" : : "r"(config), "r"(a), "r"(b), "r"(sums) : "memory");
  _tile_loadconfig(config);
  _tile_loadd(0, sums, 64);
  _tile_loadd(1, a, 64);
  _tile_loadd(2, b, 64);
  switch (product) {
    case TileProduct::kBf16:
      _tile_dpbf16ps(0, 1, 2);
      break;
    case TileProduct::kSigned:
      _tile_dpbssd(0, 1, 2);
      break;
    case TileProduct::kSignedUnsigned:
      _tile_dpbsud(0, 1, 2);
      break;
  }
  _tile_stored(0, sums, 64);
  _tile_release();
}

}  // namespace kakeya::twin::KAKEYA_TWIN_KIND
