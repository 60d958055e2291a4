// Random weights for measuring speed, which does not depend on values: numbers, and blocks of any
// codes whose scales make the values as large as those of a trained matrix.
#pragma once

#include <cstddef>
#include <span>

#include "base/random.h"
#include "tensor/dtype.h"
#include "tensor/quantized_format.h"

namespace kakeya {

// Uniform numbers between center - width and center + width.
struct RandomSpread {
  float center = 0.0F;
  float width = 0.0F;
};

// Fills `out`, whole numbers of F32, F16 or BF16.
void fill_random_numbers(DType dtype,
                         const RandomSpread& spread,
                         SequenceRng& rng,
                         std::span<std::byte> out);

// True if fill_random_blocks() can make the format: those with halves as scales (Q4_0 ... Q8_0,
// Q2_K ... Q6_K, IQ4_NL, IQ4_XS).
bool has_random_blocks(QuantizedFormat format);

// Fills `out`, whole blocks of a format of has_random_blocks(), with elements whose mean is about 0
// and whose standard deviation is about `deviation`.
void fill_random_blocks(QuantizedFormat format,
                        float deviation,
                        SequenceRng& rng,
                        std::span<std::byte> out);

}  // namespace kakeya
