// Numbers that stand for weights: of every byte that they are made of. They are made of the numbers
// of a few rows each, which threads can compute apart, while they read the rows anyway.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "tensor/tensor_view.h"

namespace kakeya {

// Rows that have a number of their own. Those of each stacked matrix are counted from its first.
inline constexpr std::int64_t kHashedRows = 16;

// Numbers that a tensor's rows have: a stacked matrix's after the other's.
std::int64_t num_row_hashes(const TensorView& weight);
// Number `index` of them.
std::uint64_t hash_rows(const TensorView& weight, std::int64_t index);
// The tensor's, of all those of its rows: with name, shape and types.
std::uint64_t combine_row_hashes(const TensorView& weight, std::span<const std::uint64_t> rows);

// The tensor's hash, computed on this thread or on all of a pool.
std::uint64_t hash_weight(const TensorView& weight);
std::uint64_t hash_weight(const TensorView& weight, ThreadPool& pool);
// The hash of a tensor's name, shape and types, without a look at its values.
std::uint64_t hash_description(const TensorView& weight);

}  // namespace kakeya
