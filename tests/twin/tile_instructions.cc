// Compiled for AVX-512 (BW, VL): it uses no inline function of the standard library, of which the
// linker might take this copy for the rest of the program.
#include "twin/tile_instructions.h"

#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

namespace kakeya::twin {
namespace {

constexpr int kTiles = 8;
constexpr int kRows = 16;
constexpr int kRowBytes = 64;

struct Tiles {
  bool configured = false;
  int rows[kTiles] = {};
  int row_bytes[kTiles] = {};
  alignas(64) unsigned char data[kTiles][kRows][kRowBytes] = {};
};

thread_local Tiles tiles;

[[noreturn]] void fail(const char* instruction, const char* reason, int tile) {
  fprintf(stderr, "tile instruction %s: %s (tile %d)\n", instruction, reason, tile);
  abort();
}

void require(bool held, const char* instruction, const char* reason, int tile) {
  if (!held) fail(instruction, reason, tile);
}

void require_tile(const char* instruction, int tile) {
  require(tile >= 0 && tile < kTiles, instruction, "there are tiles 0 to 7", tile);
  require(tiles.configured, instruction, "no configuration is loaded", tile);
  require(tiles.rows[tile] > 0, instruction, "the configuration has no such tile", tile);
}

// Columns of 32 bits in use.
__mmask16 columns_of(int tile) {
  return static_cast<__mmask16>((1U << (tiles.row_bytes[tile] / 4)) - 1U);
}

void require_product(const char* instruction, int sums, int a, int b) {
  require_tile(instruction, sums);
  require_tile(instruction, a);
  require_tile(instruction, b);
  require(sums != a && sums != b && a != b, instruction, "its tiles must be three", sums);
  require(tiles.row_bytes[sums] % 4 == 0, instruction, "its sums are no whole numbers", sums);
  require(tiles.row_bytes[a] % 4 == 0, instruction, "its rows are no whole groups", a);
  require(tiles.rows[a] == tiles.rows[sums], instruction, "its rows are not those of the sums", a);
  require(tiles.row_bytes[b] == tiles.row_bytes[sums], instruction,
          "its columns are not those of the sums", b);
  require(tiles.rows[b] == tiles.row_bytes[a] / 4, instruction,
          "its rows are not the columns of the first operand", b);
}

__m512i row_of(int tile, int row) {
  return _mm512_load_si512(tiles.data[tile][row]);
}

__m512i group_of(int tile, int row, int group) {
  int value = 0;
  __builtin_memcpy(&value, tiles.data[tile][row] + 4 * group, sizeof(value));
  return _mm512_set1_epi32(value);
}

__m512 first_of(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}
__m512 second_of(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(-65536)));
}

// Not inline, so that all of it runs between the changes of the state around it.
__attribute__((noinline)) void add_bf16_products(int sums, int a, int b) {
  const int groups = tiles.rows[b];
  __m512 firsts[kRows];
  __m512 seconds[kRows];
  for (int k = 0; k < groups; ++k) {
    firsts[k] = first_of(row_of(b, k));
    seconds[k] = second_of(row_of(b, k));
  }
  const __mmask16 columns = columns_of(sums);
  for (int m = 0; m < tiles.rows[sums]; ++m) {
    __m512 first = _mm512_setzero_ps();
    __m512 second = _mm512_setzero_ps();
    for (int k = 0; k < groups; ++k) {
      const __m512i pair = group_of(a, m, k);
      first = _mm512_fmadd_ps(first_of(pair), firsts[k], first);
      second = _mm512_fmadd_ps(second_of(pair), seconds[k], second);
    }
    auto* const sum = tiles.data[sums][m];
    const __m512 added = _mm512_add_ps(_mm512_load_ps(sum), _mm512_add_ps(first, second));
    _mm512_store_ps(sum, _mm512_maskz_mov_ps(columns, added));
  }
}

// Bytes 0 and 2 of each group of 4, as words; and bytes 1 and 3.
template <bool kSigned>
__m512i even_bytes(__m512i groups) {
  return kSigned ? _mm512_srai_epi16(_mm512_slli_epi16(groups, 8), 8)
                 : _mm512_and_si512(groups, _mm512_set1_epi16(255));
}
template <bool kSigned>
__m512i odd_bytes(__m512i groups) {
  return kSigned ? _mm512_srai_epi16(groups, 8) : _mm512_srli_epi16(groups, 8);
}

template <bool kSignedB>
void add_integer_products(int sums, int a, int b) {
  const int groups = tiles.rows[b];
  const __mmask16 columns = columns_of(sums);
  __m512i even[kRows];
  __m512i odd[kRows];
  for (int k = 0; k < groups; ++k) {
    even[k] = even_bytes<kSignedB>(row_of(b, k));
    odd[k] = odd_bytes<kSignedB>(row_of(b, k));
  }
  for (int m = 0; m < tiles.rows[sums]; ++m) {
    auto* const to = tiles.data[sums][m];
    __m512i sum = _mm512_load_si512(to);
    for (int k = 0; k < groups; ++k) {
      const __m512i x = group_of(a, m, k);
      sum = _mm512_add_epi32(sum, _mm512_madd_epi16(even_bytes<true>(x), even[k]));
      sum = _mm512_add_epi32(sum, _mm512_madd_epi16(odd_bytes<true>(x), odd[k]));
    }
    _mm512_store_si512(to, _mm512_maskz_mov_epi32(columns, sum));
  }
}

}  // namespace

void tile_load_config(const void* memory) {
  const char* const name = "ldtilecfg";
  const auto* const bytes = static_cast<const unsigned char*>(memory);
  require(bytes[0] == 1, name, "the palette must be 1", -1);
  require(bytes[1] == 0, name, "an instruction is not to be restarted", -1);
  for (int i = 2; i < 16; ++i) require(bytes[i] == 0, name, "a reserved byte is not 0", -1);
  Tiles loaded;
  for (int tile = 0; tile < 16; ++tile) {
    uint16_t row_bytes = 0;
    __builtin_memcpy(&row_bytes, bytes + 16 + 2 * tile, sizeof(row_bytes));
    const int rows = bytes[48 + tile];
    require(tile < kTiles || (rows == 0 && row_bytes == 0), name, "there are tiles 0 to 7", tile);
    require(rows <= kRows, name, "a tile has at most 16 rows", tile);
    require(row_bytes <= kRowBytes, name, "a row has at most 64 bytes", tile);
    require((rows == 0) == (row_bytes == 0), name, "rows and bytes must both be 0 or not", tile);
    if (tile >= kTiles) continue;
    loaded.rows[tile] = rows;
    loaded.row_bytes[tile] = row_bytes;
  }
  loaded.configured = true;
  tiles = loaded;
}

void tile_release() {
  tiles.configured = false;
}

void tile_zero(int tile) {
  require_tile("tilezero", tile);
  __builtin_memset(tiles.data[tile], 0, sizeof(tiles.data[tile]));
}

void tile_load(int tile, const void* from, ptrdiff_t stride) {
  tile_zero(tile);
  const auto* row = static_cast<const unsigned char*>(from);
  for (int m = 0; m < tiles.rows[tile]; ++m, row += stride) {
    __builtin_memcpy(tiles.data[tile][m], row, static_cast<size_t>(tiles.row_bytes[tile]));
  }
}

void tile_store(int tile, void* to, ptrdiff_t stride) {
  require_tile("tilestored", tile);
  auto* row = static_cast<unsigned char*>(to);
  for (int m = 0; m < tiles.rows[tile]; ++m, row += stride) {
    __builtin_memcpy(row, tiles.data[tile][m], static_cast<size_t>(tiles.row_bytes[tile]));
  }
}

void tile_multiply_bf16(int sums, int a, int b) {
  require_product("tdpbf16ps", sums, a, b);
  // Round to nearest even, no exceptions, denormal numbers in and out are 0.
  constexpr unsigned kState = 0x1f80U | 0x8000U | 0x40U;
  const unsigned before = _mm_getcsr();
  _mm_setcsr(kState);
  add_bf16_products(sums, a, b);
  _mm_setcsr(before);
}

void tile_multiply_signed(int sums, int a, int b) {
  require_product("tdpbssd", sums, a, b);
  add_integer_products<true>(sums, a, b);
}

void tile_multiply_signed_unsigned(int sums, int a, int b) {
  require_product("tdpbsud", sums, a, b);
  add_integer_products<false>(sums, a, b);
}

}  // namespace kakeya::twin
