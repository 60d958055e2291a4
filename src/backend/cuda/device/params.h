// The parameters of kernels, handed by value. Pointers are the device's.
#pragma once

#include <cstdint>

namespace kakeya::cuda::device {

enum class WeightType : std::int32_t { kF32, kF16, kBf16, kIntegers };

// Stacked matrices [X, rows, cols].
struct Weight {
  const void* data;  // of its type; of kIntegers: as integer_strips.h says
  std::int64_t rows;
  std::int64_t cols;
  WeightType type;
  std::int32_t zero;  // of kIntegers, as all members from `four_bits` on: see IntegerFormat
  bool rounds_rows;   // activations are rounded to bf16 before they meet it
  bool four_bits;     // else 8
  bool has_minimum;
  bool halves;       // scales are for 16 columns
  bool half_scales;  // scales are f16; else f32, as minimums are
  bool unused[3];
};

// x [count, width]; where some weight is of integers, also what it is rounded to, as
// integer_strips.h says. Without that a block rounds the rows that it reads (strip_rows.h).
struct ProductRows {
  const float* x;
  std::int64_t count;
  std::int64_t width;
  const std::int8_t* codes;  // [count, steps, 64]
  const float* numbers;      // [count, steps, 4]
  const float* low_sums;     // [count, steps, 2]
};

// How the blocks of a kernel take strips of integers. No member and no struct that has one leaves
// bytes out: parameters are compared byte for byte.
struct StripPlan {
  std::int32_t copy_words;   // of a slot of a warp's ring
  std::int32_t chunk_steps;  // of rows that are in shared memory at a time
  std::int32_t blocks;       // that share the strips of a tile of rows
  std::int32_t warps;        // of a block, that take strips; all bring rows
  std::int32_t tile_rows;    // of integer_tiles.h, at most
  bool reads_once;           // no other block reads the same weights
  bool has_halves;           // some scales are for 16 columns
  bool unused[2];
};

// Rows of which each has so many ranks, in pairs of both, and which of them are an expert's.
struct alignas(16) ExpertTile {
  std::int32_t expert;
  std::int32_t first;      // in ExpertGroups::order
  std::int32_t count;      // at most GroupExpertsParams::tile_pairs; 0: none
  std::int32_t num_tiles;  // that have pairs, of group_experts()
};
struct ExpertGroups {
  std::int32_t* order;  // pairs, those of an expert together
  ExpertTile* tiles;
};
inline constexpr int kGroupedRows = 8;  // of a tile, at most, but of integer_tiles.h
struct GroupExpertsParams {
  const std::int32_t* experts;  // of each pair
  std::int64_t pairs;
  std::int64_t num_experts;
  std::int64_t num_tiles;
  std::int64_t tile_pairs;
  ExpertGroups groups;
};

// Inputs of a pass, as the host has written them to memory that both reach.
struct TakeInputsParams {
  const std::int64_t* from;  // the number of the pass, then positions
  const std::int32_t* ids_from;
  std::int64_t* to;
  std::int32_t* ids;
  std::int64_t count;  // of numbers, from the pass's one on
  std::int64_t num_ids;
};
struct TellHostParams {
  const std::int64_t* number;
  std::int64_t* told;  // the host's
};
struct EmbedParams {
  Weight table;
  const std::int32_t* ids;
  float scale;
  std::int64_t count;
  float* out;
};
struct NormParams {
  const float* x;
  const float* weight;  // or null
  float eps;
  std::int64_t count;
  std::int64_t width;
  float* out;
};
struct RoundParams {
  const float* x;
  std::int64_t count;
  std::int64_t width;
  // As in ProductRows.
  std::int8_t* codes;
  float* numbers;
  float* low_sums;
};
struct ProductParams {
  ProductRows rows;
  Weight weight;
  float* out;
};
// A matrix of those whose products with the same rows one launch makes.
struct ProductPart {
  Weight weight;
  float* out;
};
struct IntegerProductParams {
  static constexpr int kMostParts = 3;

  ProductRows rows;
  ProductPart parts[kMostParts];
  StripPlan plan;
  std::int64_t num_parts;
};
struct GatedProductParams {
  ProductRows rows;
  Weight gate;
  Weight up;
  float* out;
  StripPlan plan;  // for integers
  bool silu;
  bool unused[7];
};
struct GateParams {
  const float* gate;
  const float* other;
  std::int64_t other_stride;
  bool silu;
  std::int64_t count;
  std::int64_t width;
  float* out;
};
struct RopeTableParams {
  const std::int64_t* positions;
  const float* frequencies;
  std::int64_t num_frequencies;
  std::int64_t count;
  std::int64_t half;
  float* cos;
  float* sin;
};
struct RopeParams {
  float* x;
  const float* cos;
  const float* sin;
  std::int64_t count;
  std::int64_t width;
  std::int64_t half;
};

// KvFormat.
enum class RowFormat : std::int32_t { kF32, kBf16, kInt8, kE8 };

// KvRows, with the tables of its blocks on the device.
struct CachedRows {
  const std::uint64_t* keys;  // null: made from the values
  const std::uint64_t* values;
  std::int64_t block_slots;
  std::int64_t capacity;
  std::int64_t sink;
  std::int64_t num_kv_heads;
  std::int64_t head_dim;
  std::int64_t vector_bytes;
  RowFormat format;
  std::int32_t unused;
};

// The sequences whose rows one launch takes, at most.
inline constexpr int kMostSequences = 8;
// Rows of a sequence, behind those of the sequences before it, and what its cache has for itself.
struct SequenceRows {
  std::int64_t end;  // behind its last row, of the rows of the launch
  const std::uint64_t* keys;
  const std::uint64_t* values;
  std::int64_t capacity;
};
// Where rows of sequences are stored.
struct CachePlaces {
  const std::int64_t* positions;  // of the rows
  CachedRows cache;               // of the first sequence
  std::int64_t num_sequences;
  SequenceRows sequences[kMostSequences];
};

struct StoreParams {
  const float* rows;  // [count, K * E]
  CachePlaces to;
  bool are_keys;  // else values
  bool unused[7];
};
// Positions are read where the pass has them: what differs from pass to pass is no parameter, so
// that graphs need not change.
struct AttentionParams {
  const float* queries;  // [count, H * E]
  std::int64_t num_heads;
  const std::int64_t* positions;  // [rows], one behind the other
  std::int64_t first_row;         // of the rows of its sequence in the pass
  std::int64_t block_rows;        // of the pass, all of which each row sees; 0: those up to itself
  std::int64_t window;
  std::int64_t kept;
  float scale;
  std::int32_t
      part_positions;   // of tensor_attention.h: kChunk or kTensorSpan; 0: there is one part
  const float* k_norm;  // null: keys are stored, and restored ones are not normed
  const float* frequencies;
  std::int64_t num_frequencies;
  CachedRows cache;
  std::int64_t rows;
  // At most: of what a row sees; of tensor_attention.h: parts of what all see. Those that there are
  // not have blocks, too.
  std::int64_t spans;
  float* partials;    // [rows, H, spans, 2 + E]
  std::int64_t room;  // floats that nobody else has, from there on; of tensor_attention.h
  // Count the blocks of each kv head in joined_attention.h: zero, as they are again behind it.
  // Null: the parts are not joined there.
  std::uint32_t* counters;
  float* out;
  RoundParams rounded;  // of all of `out`, made by join_attention_parts(); codes null: nothing
};
// Attention of several sequences in parts: those before `ends[i]`, of rows of blocks, are of
// sequence i or of one before it.
struct ManyAttentionsParams {
  std::int64_t count;
  std::int64_t parts;  // of each sequence, where all have one tile of so many; else 0
  std::int64_t ends[kMostSequences];
  AttentionParams sequences[kMostSequences];  // `rounded` is not theirs
  RoundParams rounded;  // of what all make, one after the other; codes null: nothing
};
// RestoredRows and what AttentionSettings say of them.
struct RestoredAttentionParams {
  AttentionParams attention;
  CachedRows codes;
  const float* key_decoder;
  const float* value_decoder;
  bool normalise_values;
  float eps;
};
struct RouteParams {
  const float* logits;
  std::int64_t num_experts;  // at most kMaxExperts
  const float* per_expert_scale;
  std::int64_t top_k;  // at most kMaxTopK
  std::int32_t* experts;
  float* weights;
  std::uint32_t* counter;  // of the blocks of early_route(): zero, as it is again behind it
};
// The product that makes the logits of one row, and the choice among them.
struct EarlyRouteParams {
  ProductParams product;
  RouteParams route;
};
inline constexpr std::int64_t kMaxExperts = 1024;
inline constexpr std::int64_t kMaxTopK = 32;

struct ExpertHiddenParams {
  ProductRows rows;
  Weight gate;
  Weight up;
  const std::int32_t* experts;
  std::int64_t top_k;
  ExpertGroups groups;  // of grouped_expert_hidden()
  float* hidden;        // [count, top_k, F]
  StripPlan plan;       // for integers
  RoundParams rounded;  // of all of `hidden`, made by plain_expert_hidden() and
                        // few_hidden(); codes null: nothing
  bool silu;
  bool unused[7];
};
struct ExpertOutputParams {
  ProductRows rows;  // the hidden ones, [count * top_k, F]
  Weight down;
  const std::int32_t* experts;
  const float* weights;
  std::int64_t top_k;
  ExpertGroups groups;  // of grouped_expert_output()
  float* ranks;         // [count * top_k, D], which it makes
  float* out;
  StripPlan plan;  // for integers
};
// Outputs of experts, and one product of codes of one row.
struct PlainOutputsParams {
  ExpertOutputParams experts;
  ProductRows rows;
  ProductPart product;
};
// NaN if some number of the part of the row is not finite; id -1: there is none.
struct alignas(8) ListedLogit {
  float value;
  std::int32_t id;
};
struct LargestParams {
  const float* x;  // [rows, width]
  std::int64_t width;
  std::int64_t span;  // columns of a block
  // [rows, blocks, kLargestBins, kLargestOfBin], the largest of a bin first; of the host.
  ListedLogit* out;
};
struct AddParams {
  const float* a;
  const float* b;
  float scale;
  std::int64_t size;
  float* out;
};
struct AddVectorParams {
  float* x;  // [count, width]
  const float* vector;
  std::int64_t count;
  std::int64_t width;
};
struct ConvolveParams {
  const float* x;  // [count, width], the rows of one segment
  std::int64_t count;
  std::int64_t width;
  const float* base;  // [taps, width]
  const float* own;   // [count, own_width]
  std::int64_t own_width;
  std::int64_t column;
  std::int64_t taps;
  std::int64_t group;
  float* out;
};
struct SoftcapParams {
  float* x;
  float cap;
  std::int64_t size;
};
struct CopyColumnsParams {
  const float* x;
  std::int64_t count;
  std::int64_t width;
  float* out;
  std::int64_t out_width;
  std::int64_t column;
};

// One of the operations of row_steps(): kNorm, kAdd and kCopy read a, multiply by b (none: by 1) or
// add it, and make `out`; kRound makes codes of a. `number`: eps, or the factor of a sum. Rows are
// named by their places.
enum class RowStepKind : std::int32_t { kNorm, kAdd, kCopy, kRound };
struct alignas(16) RowStep {
  RowStepKind kind;
  float number;
  float* out;
  std::int8_t* codes;
  float* numbers;
  float* low_sums;
  std::int32_t out_width;  // of kCopy, likewise the column
  std::int32_t column;
  std::int8_t a;
  std::int8_t b;  // or -1
  std::int8_t made;
  bool keeps_factor;  // of kNorm: the last norm was of the same row
  std::int32_t unused[3];
};
inline constexpr int kMaxRowSteps = 12;
inline constexpr int kMaxRowPlaces = 12;
struct RowStepsParams {
  std::int64_t width;
  std::int32_t count;
  std::int32_t num_weights;
  std::int32_t num_brought;  // weights, then rows
  std::int32_t unused;
  const float* brought[kMaxRowPlaces];  // what places hold at first
  std::int64_t also_unused;             // the steps are behind it at once
  RowStep steps[kMaxRowSteps];
};

// Steps between products, of rows of `width` columns. With all parts:
//   sum = norm(a) + norm(b);  out = (x + norm(sum)) * scale;  norms[k] = norm(out)
// Without b: out = (x + norm(a)) * scale. Each norm has weights, or null; what is made on the way
// goes to the places that are not null. All norms have the same eps.
struct ResidualTerm {
  const float* x;  // null: there is none
  const float* weight;
  float* out;
};
struct ResidualNorm {
  const float* weight;
  float* out;
  std::int8_t* codes;  // as in RoundParams; null: it is not rounded
  float* numbers;
  float* low_sums;
};
inline constexpr int kResidualNorms = 3;
struct ResidualStepsParams {
  std::int64_t width;
  ResidualTerm a;
  ResidualTerm b;
  const float* sum_weight;
  float* sum_out;
  float* normed_sum_out;
  const float* x;
  float* out;
  float* copy;  // where out is written once more, the row's width there; null: nowhere
  std::int64_t copy_width;
  ResidualNorm norms[kResidualNorms];
  float scale;
  float eps;
  std::int32_t num_norms;
  bool normalises;  // else a is added as it is
  bool unused[3];
};

// Steps behind the products that make queries, keys or values: a norm of each head (weight null:
// without one; eps negative: none at all), rotary embedding (cos null: none), a row of the cache
// (blocks null: none).
// What a track's heads are in the cache.
enum class StoredAs : std::int32_t { kNothing, kKeys, kValues };
struct HeadTrack {
  const float* x;
  float* out;  // [rows, heads, size]
  const float* weight;
  const float* cos;
  const float* sin;
  std::int64_t heads;
  float eps;
  StoredAs stored;
};
inline constexpr int kMaxHeadTracks = 3;
struct HeadStepsParams {
  std::int64_t size;
  std::int64_t count;
  CachePlaces to;
  HeadTrack tracks[kMaxHeadTracks];
};

}  // namespace kakeya::cuda::device
