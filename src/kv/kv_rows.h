// The layout of stored keys and values, as a cache writes it and backends read it, and which of
// them a query sees.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/device_pointer.h"
#include "kakeya/types.h"
#include "tensor/calibrated_code.h"
#include "tensor/kv_format.h"

namespace kakeya {

// One layer's stored keys and values, [capacity, K] vectors of E elements each, coded as `format`
// says. For rings and for full layers (whose capacity is the context) alike, positions below `sink`
// have slots of their own and the others share the rest in turn. Slots lie in blocks, each in one
// piece: slot s is number s % block_slots of block s / block_slots. A block without a slot that is
// stored or seen may be null.
struct KvRows {
  // Where each block's keys begin; null: not stored, attention makes them from the values.
  const DevicePointer<std::byte>* keys = nullptr;
  const DevicePointer<std::byte>* values = nullptr;  // the same of its values
  std::int64_t block_slots = 0;
  KvFormat format = KvFormat::kF32;
  std::int64_t capacity = 0;
  std::int64_t num_kv_heads = 0;  // K
  std::int64_t head_dim = 0;      // E
  std::int64_t sink = 0;          // at most capacity
  std::int64_t code_bytes = 0;    // of a vector of a calibrated code; 0: as `format` says

  std::int64_t slot(Position p) const {
    return p < sink ? p : sink + (p - sink) % (capacity - sink);
  }
  std::int64_t vector_bytes() const {
    return code_bytes > 0 ? code_bytes : kv_vector_bytes(format, head_dim);
  }
  std::int64_t slot_bytes() const { return num_kv_heads * vector_bytes(); }

  // The K vectors of `slot`, in the blocks of keys or of values.
  DevicePointer<std::byte> row(const DevicePointer<std::byte>* blocks, std::int64_t slot) const {
    return blocks[slot / block_slots] + slot % block_slots * slot_bytes();
  }
};

// Where rows that a query has evicted come from: codes of low rank, one for the keys and one for
// the values of all layers. What k_proj and v_proj would have given is about
//
//   raw = code * decoder [rank, K * E],
//
// from where keys and values are made as ever: norms (of keys KeyDerivation::k_norm, or none), the
// rotation of the row's own position, and the rounding of KvRows of bf16; where only values are
// stored, a key is made of the normed and rounded vector as KeyDerivation says.
struct RestoredRows {
  KvRows codes;  // one "head" of `rank` elements
  DevicePointer<const float> key_decoder;
  DevicePointer<const float> value_decoder;
};

// Rows that a query has evicted in calibrated codes, which are written with every row: keys before
// rotation, and values; or, where one vector serves as both, that vector, which is the value, and
// the key is made of it as KeyDerivation says.
struct CodedRows {
  KvRows keys;                                  // the codes are the blocks of `values` of each
  KvRows values;                                // of one vector: none
  const CalibratedCode* key_codes = nullptr;    // [K]
  const CalibratedCode* value_codes = nullptr;  // [K]; null: of one vector
  const CodeView* key_views = nullptr;          // their tables
  const CodeView* value_views = nullptr;
};

// The keys and values of one layer of one sequence, and which of them its queries see.
struct KvLayer {
  KvRows rows = {};
  std::int64_t window = 0;  // a query sees 0 <= p_q - p_k < window; 0: all p_k <= p_q
  // Only keys with p_q - p_k < kept or p_k < rows.sink are left of those; 0: all.
  std::int64_t kept = 0;
  // True if the rows between the sink and the kept ones are restored, as `restored` says; kept > 0
  // then.
  bool is_restored = false;
  RestoredRows restored = {};
  // True if those rows are in calibrated codes, as `coded` says; kept > 0 then.
  bool is_coded = false;
  CodedRows coded = {};
};

}  // namespace kakeya
