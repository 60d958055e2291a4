// Random weights in the encodings of GGUF files: any codes, and scales that make the values of a
// row as large as those of a trained matrix. For measuring speed, which does not depend on values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/random.h"
#include "formats/gguf.h"
#include "kakeya/status.h"

namespace kakeya::peers {

// Whether fill_random_row() can make rows of the encoding: F32, F16, BF16 and the block formats
// with halves as scales (Q4_0 ... Q8_0, Q4_K ... Q6_K, IQ4_NL).
bool has_random_rows(GgufEncoding encoding);

// Fills a row with elements whose mean is about 0 and whose standard deviation is about
// `deviation`. The encoding must be one of has_random_rows() and `row` a whole number of its
// blocks.
void fill_random_row(GgufEncoding encoding,
                     float deviation,
                     SequenceRng& rng,
                     std::span<std::byte> row);

}  // namespace kakeya::peers
