// How a code of so many bytes is best spent: on more elements or on finer ones.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "captured_rows.h"
#include "projection_moments.h"
#include "reduced_rank.h"
#include "tensor/kv_format.h"

namespace kakeya::train {

// A code of `rank` elements that is stored so.
struct CodeChoice {
  KvFormat format = KvFormat::kBf16;
  std::int64_t rank = 0;
  std::int64_t bytes = 0;  // a token
  // The share of the energy of keys and values that were not trained on, that decoders make of
  // codes as they are read back; mean over layers, keys and values.
  double explained = 0.0;
};

// For each way to store a vector the longest code of at most so many bytes and elements; f32 is
// none. Empty if there is no room for any.
std::vector<CodeChoice> code_choices(std::int64_t most_bytes, std::int64_t most_rank);

// Fills in `explained`. `fit`: of keys and values as targets of one code, as `moments` numbers
// them, whose leading elements are a fit of each smaller rank; `documents`: as `plan` says, of
// features that keys and values share; of more than kSink rows each.
void measure_choices(const CapturePlan& plan,
                     const ProjectionMoments& moments,
                     const ReducedRankFit& fit,
                     std::span<const CapturedDocument> documents,
                     std::span<CodeChoice> choices);

// The bytes that the rows themselves would take, stored in each way that the plan's layers allow,
// and the same share of them as they are read back. `rank`: elements of all layers, each vector
// once.
std::vector<CodeChoice> measure_rows(const CapturePlan& plan,
                                     std::span<const CapturedDocument> documents);

}  // namespace kakeya::train
