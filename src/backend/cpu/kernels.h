// The leaf functions of the CPU backend, as one table for each instruction set. A leaf works on the
// rows and panels it is told to, on the calling thread; splitting work over threads and all memory
// belong to the executor. Only plain types here: units compiled with different flags share it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tensor/code_view.h"
#include "tensor/kv_format.h"

namespace kakeya::cpu {

using Index = std::int64_t;

inline constexpr Index kPanelRows = 16;   // outputs of one panel
inline constexpr Index kColumnUnit = 32;  // columns are padded to whole AMX tiles
inline constexpr Index kRowBlock = 16;    // packed rows come in blocks of 16, as AMX tiles do
inline constexpr Index kKeyChunk = 64;    // keys of one step of the online softmax
inline constexpr Index kMaxQueries = 32;  // query vectors of one attention call in f32
inline constexpr Index kMaxHeadDim = 512;
inline constexpr Index kMaxRank = 4096;  // of restored rows

constexpr Index round_up(Index value, Index unit) {
  return (value + unit - 1) / unit * unit;
}

// How a product is computed; decides the form of the packed rows and of the panels.
enum class Arithmetic : std::uint8_t {
  kF32,        // f32 panels, f32 rows
  kBf16Exact,  // bf16 panels widened, f32 rows
  kBf16Fast,   // bf16 panels, rows rounded to bf16
  kInteger     // panels of integers, rows rounded to int8
};

inline constexpr Index kIntegerRun = 32;   // columns that share the step of a row rounded to int8
inline constexpr Index kIntegerUnit = 64;  // columns of integer panels are padded to whole units

// kCode: int8, times factors in f16 that a unit shares.
enum class ScaleType : std::uint8_t { kF16, kBf16, kF32, kCode };

// Panels of integers (tensor/integer_blocks.h). A panel is a row of units of 64 columns, or of 256
// where scales have factors, each
//
//   codes     runs of 32 columns, in lines of 64 bytes: four bytes for each output, for columns
//             k ... k + 3. With 8 bits line l of a run has columns 4 l ...; with 4 bits columns 8 l
//             ... in the low nibbles and 8 l + 4 ... in the high ones. With 5 and 6 bits four such
//             lines hold the low ones; the high ones of four columns, then of the next four, and
//             so on, fill the bytes of line 4, and with 6 bits of line 5
//   scales    [columns / group][16]
//   minimums  [columns / group][16], if there are any
//   factors   [16] f16 of the scales, and of the minimums if there are any, if they have factors
//
// in whole cache lines.
struct IntegerPanels {
  int bits = 8;
  int zero = 0;
  int group = 32;  // 16, 32 or 64
  bool has_minimum = false;
  ScaleType scale_type = ScaleType::kF32;
  // Codes of 4 bits stand for these, a static table [16]; null: for themselves.
  const std::uint8_t* levels = nullptr;

  constexpr bool has_factors() const { return scale_type == ScaleType::kCode; }
  constexpr Index unit_columns() const { return has_factors() ? 4 * kIntegerUnit : kIntegerUnit; }
  constexpr Index run_bytes() const { return bits * kPanelRows * kIntegerRun / 8; }
  constexpr Index code_bytes() const { return unit_columns() / kIntegerRun * run_bytes(); }
  constexpr Index scale_bytes() const {
    return scale_type == ScaleType::kF32 ? 4 : has_factors() ? 1 : 2;
  }
  // The bytes of a unit's scales, or of its minimums.
  constexpr Index scales_bytes() const {
    return unit_columns() / group * kPanelRows * scale_bytes();
  }
  constexpr Index factor_bytes() const { return has_factors() ? kPanelRows * 2 : 0; }
  // Where factors begin in a unit, if there are any.
  constexpr Index factors_at() const {
    return code_bytes() + scales_bytes() * (has_minimum ? 2 : 1);
  }
  constexpr Index unit_bytes() const {
    return round_up(factors_at() + factor_bytes() * (has_minimum ? 2 : 1), 64);
  }
  // Columns whose products are added as integers.
  constexpr Index sum_columns() const { return group < kIntegerRun ? group : kIntegerRun; }

  friend bool operator==(const IntegerPanels&, const IntegerPanels&) = default;
};

// Rows rounded to int8 come in blocks of 16, the last one shorter, of r rows:
//
//   codes    [columns / 32][r][32] int8: round(x / step), ties to even
//   steps    [columns / 32][r] f32: the largest |x| of the run / 127
//   offsets  [columns / g][r] int32: -zero * the sum of the codes, g = sum_columns()
//   sums     [columns / g][r] f32: step * the sum of the codes
//
// Where these begin in a block, in bytes; `columns` are padded to units.
struct IntegerRowPlaces {
  Index steps;
  Index offsets;
  Index sums;
  Index end;
};
constexpr IntegerRowPlaces integer_row_places(Index columns,
                                              const IntegerPanels& panels,
                                              Index rows) {
  const Index steps = columns * rows;
  const Index offsets = steps + columns / kIntegerRun * rows * 4;
  const Index sums = offsets + columns / panels.sum_columns() * rows * 4;
  return {steps, offsets, sums, sums + (sums - offsets)};
}

// Bytes of one row.
constexpr Index integer_row_bytes(Index columns, const IntegerPanels& panels) {
  return integer_row_places(columns, panels, 1).end;
}

enum class Activation : std::uint8_t { kGeluTanh, kSilu };

// Rows [rows, width] to bring into the packed form of `arithmetic`, padded with zeros to
// columns = round_up(width, kColumnUnit), or whole units of integers. Row r is x + (gather ?
// gather[r] : r) * stride.
struct PackRows {
  const float* x = nullptr;
  const std::int32_t* gather = nullptr;
  Index stride = 0;
  Index rows = 0;
  Index width = 0;
  Arithmetic arithmetic = Arithmetic::kF32;
  IntegerPanels integers = {};  // of the panels that the rows will meet
  std::byte* packed = nullptr;
};

// out [rows, outputs] = packed x times panels; with `up`, activation(x gate^T) * (x up^T). The
// result goes to `out`, or, when `packed_out` is set, into the packed form of the next product.
struct Product {
  const std::byte* x = nullptr;
  Index rows = 0;
  Index columns = 0;  // padded
  const std::byte* panels = nullptr;
  const std::byte* up_panels = nullptr;
  Index panel_bytes = 0;
  Index outputs = 0;
  Arithmetic arithmetic = Arithmetic::kF32;
  IntegerPanels integers = {};
  Activation activation = Activation::kGeluTanh;
  float* out = nullptr;
  Index out_stride = 0;
  std::byte* packed_out = nullptr;
  Arithmetic packed_arithmetic = Arithmetic::kF32;  // not kInteger
};

// The part of a product that one call computes. first_row is a multiple of kRowBlock.
struct ProductPart {
  Index first_row = 0;
  Index last_row = 0;
  Index first_panel = 0;
  Index last_panel = 0;
};

// A ring of slots in blocks; position p is in slot p mod capacity.
struct Slots {
  const std::byte* const* blocks = nullptr;
  Index block_slots = 1;
  Index capacity = 1;
  Index slot_bytes = 0;  // from slot to slot
};

// Evicted rows that are restored from codes of low rank (RestoredRows of the seam).
struct Restored {
  Slots key_codes;
  Slots value_codes;
  KvFormat code_format = KvFormat::kF32;
  Index rank = 0;                      // at most kMaxRank
  const float* key_decoder = nullptr;  // [rank, decoder_stride]
  const float* value_decoder = nullptr;
  Index decoder_stride = 0;
  bool normalise_values = false;
  float eps = 0.0F;
};

// Evicted rows in calibrated codes (CodedRows of the seam).
struct Coded {
  Slots keys;           // of one vector, those vectors
  Slots values;         // of one vector unused
  Index key_bytes = 0;  // of one head
  Index value_bytes = 0;
  const CodeView* key_codes = nullptr;    // [K]
  const CodeView* value_codes = nullptr;  // [K]; null: of one vector
  // Cosines [turned_pairs] and sines [turned_pairs] of the angles of positions 0 ... kKeyChunk - 1.
  const float* turns = nullptr;
  Index turned_pairs = 0;  // of a head, rounded up to whole vectors
};

// Attention of heads that share one key/value head.
struct Attention {
  const float* queries = nullptr;  // query of row t, head h: queries + t * stride + h * head_dim
  float* out = nullptr;            // laid out as the queries are
  Index stride = 0;
  Index head_dim = 0;
  Index heads_per_kv = 1;    // query heads that share a key/value head
  Index first_position = 0;  // of row 0
  bool fast = false;         // as Compute::kFast of the seam says
  Index window = 0;          // 0: unlimited
  Index block_end = 0;       // every query sees the keys before it, windows permitting; 0: causal
  float scale = 1.0F;
  Index kept = 0;  // of what the window leaves, the last so many; 0: all
  // For each block: key head 0 of its first slot; null: made from values.
  const std::byte* const* keys = nullptr;
  const std::byte* const* values = nullptr;
  Index block_slots = 0;
  KvFormat format = KvFormat::kF32;
  Index capacity = 0;
  Index sink = 0;          // positions below it have slots of their own and stay beside the kept
  Index vector_bytes = 0;  // of one head
  Index slot_bytes = 0;    // from slot to slot of a block
  // Where keys is null: key = RoPE_p(k_norm * value), of which so many pairs rotate. Null: keys are
  // there, and restored ones are not normed.
  const float* k_norm = nullptr;
  const float* inverse_frequencies = nullptr;
  Index rotated_pairs = 0;
  // Rows between sink and kept; both null: they are not seen.
  const Restored* restored = nullptr;
  const Coded* coded = nullptr;
};

// rows * heads <= Kernels::max_queries.
struct AttentionPart {
  Index kv_head = 0;
  Index first_head = 0;
  Index heads = 0;
  Index first_row = 0;
  Index rows = 0;
};

// Source rows [rows, columns] of one matrix to repack. Elements are bf16 or f32, maybe unaligned.
struct PackPanels {
  const std::byte* source = nullptr;
  std::byte* panels = nullptr;
  Index rows = 0;
  Index columns = 0;
  bool bf16 = false;
};

struct Kernels {
  std::string_view name;
  Index fast_element_bytes = 0;  // of a packed row for kBf16Fast
  Index panel_group = 1;         // panels that are computed together
  double fast_gflops = 0;        // order of magnitude per thread, to decide about threads only
  double exact_gflops = 0;
  double integer_gflops = 0;

  void (*pack_rows)(const PackRows& rows, Index first_row, Index last_row) = nullptr;
  void (*multiply)(const Product& product, const ProductPart& part) = nullptr;
  Index (*max_queries)(const Attention& attention) = nullptr;  // of one call of `attend`
  void (*attend)(const Attention& attention, const AttentionPart& part) = nullptr;
  void (*pack_panels)(const PackPanels& source, Index first_panel, Index last_panel) = nullptr;

  // x and out may be the same row in the ones below.
  void (*rms_norm)(const float* x, const float* weight, Index width, float eps, float* out) =
      nullptr;
  void (*gated_multiply)(const float* gate,
                         const float* other,
                         Index width,
                         Activation activation,
                         float* out) = nullptr;
  void (*add)(const float* a, const float* b, Index width, float scale, float* out) = nullptr;
  void (*softcap)(float* x, Index width, float cap) = nullptr;
  void (*rotate)(float* head, const float* cos, const float* sin, Index half) = nullptr;
  void (*to_bf16)(const float* x, Index width, std::byte* out) = nullptr;
  // out = sum over r ascending of weights[r] * rows[index[r] * stride ...].
  void (*weighted_sum)(const float* rows,
                       Index stride,
                       const std::int32_t* index,
                       const float* weights,
                       Index count,
                       Index width,
                       float* out) = nullptr;

  // Runs `rounds` of the unit's peak loop in registers; returns the operations done.
  double (*f32_peak)(Index rounds) = nullptr;
  double (*bf16_peak)(Index rounds) = nullptr;
  // Runs `rounds` rounds of the multiplications and steps of a run of columns of such panels, all
  // in registers; returns the multiplications of weights by numbers done.
  double (*integer_bound)(const IntegerPanels& panels, Index rounds) = nullptr;
};

}  // namespace kakeya::cpu
