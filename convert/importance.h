// How much each column of a matrix matters to what a model computes: what encoders weigh the errors
// of a quantised weight with.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/memory_budget.h"

namespace kakeya {

// Factors of squared errors, one for each column of each of the matrices of a tensor [..., N, K].
// Finite and not negative. Move-only.
struct ColumnImportance {
  std::int64_t matrices = 0;  // X of [X, N, K]; 1 for [N, K]
  std::int64_t columns = 0;   // K
  Buffer factors = {};        // [X, K] f32

  const float* of_matrix(std::int64_t matrix) const {
    return factors.as<float>() + matrix * columns;
  }
};

// The factors of a model's tensors. Thread-safe for reading.
class Importance {
 public:
  void set(const std::string& tensor, ColumnImportance importance) {
    tensors_.insert_or_assign(tensor, std::move(importance));
  }

  // nullptr for a tensor of which nothing is known. `tensor`: the full name that its file gives it,
  // of a tensor in parts that of the first.
  const ColumnImportance* find(std::string_view tensor) const {
    const auto found = tensors_.find(tensor);
    return found == tensors_.end() ? nullptr : &found->second;
  }

  std::size_t size() const { return tensors_.size(); }

 private:
  std::map<std::string, ColumnImportance, std::less<>> tensors_;
};

}  // namespace kakeya
