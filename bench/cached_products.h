// Times products of rows with integer panels that stay in a core's caches, in CPU time: a slow
// format shows on a busy machine too.
#pragma once

#include <span>
#include <vector>

#include "backend/cpu/kernels.h"
#include "kakeya/status.h"
#include "tensor/quantized_format.h"

namespace kakeya::bench {

struct CachedProduct {
  int rows = 0;
  double seconds = 0.0;           // CPU time of a call; median
  double bytes = 0.0;             // of the weights
  double multiplications = 0.0;   // of a call
  double cycle_seconds = 0.0;     // CPU time of a clock cycle meanwhile; 0: unknown
  double percent_of_bound = 0.0;  // of Kernels::integer_bound, which is measured in turn
};

// Columns and outputs of each product.
inline constexpr int kCachedColumns = 2816;
inline constexpr int kCachedOutputs = 64;

// Products of each number of rows with random weights of the format, on the calling thread, for
// `seconds` each. The format has integers (tensor/integer_blocks.h) and random blocks
// (tensor/random_weights.h). Errors: kResourceExhausted.
Result<std::vector<CachedProduct>> measure_cached_products(const cpu::Kernels& kernels,
                                                           QuantizedFormat format,
                                                           std::span<const int> rows,
                                                           double seconds);

}  // namespace kakeya::bench
