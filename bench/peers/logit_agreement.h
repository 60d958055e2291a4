// How far one engine's logits are from another's on the same tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kakeya/status.h"

namespace kakeya::peers {

struct LogitAgreement {
  std::int64_t rows = 0;
  std::int64_t same_top = 0;     // rows with the same best token
  double mean_divergence = 0.0;  // Kullback-Leibler, of the reference's probabilities, in nats
  double largest_divergence = 0.0;
  std::vector<std::int32_t> best;   // token of each row, of the other file
  std::vector<double> divergences;  // of each row
};

// The divergence of one row: sum of p log(p / q) where p and q are the softmax of the two.
double divergence(std::span<const float> reference, std::span<const float> other);

// Compares two files of rows of f32, `columns` each, as the command "logits" writes them.
// Errors: kNotFound; kInvalidArgument if a file is no whole number of rows, or they do not have
// as many; kDataLoss for a logit that is not finite.
Result<LogitAgreement> compare_logits(const std::string& reference,
                                      const std::string& other,
                                      std::int64_t columns);

}  // namespace kakeya::peers
