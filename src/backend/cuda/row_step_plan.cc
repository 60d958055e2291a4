#include "backend/cuda/row_step_plan.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/cuda/device/row_steps.h"

namespace kakeya::cuda {
namespace {

using device::RowStepKind;

// Shared memory that a block may have on every card.
constexpr std::int64_t kMostWords = (99 << 10) / 4;

// Something that steps read: weights, a row that is brought, or what a step has made.
struct Value {
  const float* address;
  bool is_weight = false;
  bool is_made = false;
  std::size_t last_use = 0;
  std::int8_t place = -1;
};

class Planning {
 public:
  explicit Planning(std::span<const RowOperation> operations) : operations_(operations) {
    for (std::size_t i = 0; i < operations.size(); ++i) add(i);
  }

  std::optional<RowStepPlan> run(std::int64_t rows, std::int64_t width) {
    RowStepPlan plan;
    std::memset(&plan.params, 0, sizeof(plan.params));
    plan.params.width = width;
    plan.params.count = static_cast<std::int32_t>(operations_.size());
    if (!bring(plan.params)) return std::nullopt;
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      if (!take_place(i)) return std::nullopt;
      plan.params.steps[i] = step(i);
    }
    const std::int64_t words = device::row_step_words(num_places_, width);
    if (words > kMostWords) return std::nullopt;
    plan.shape = {rows, 1, device::kRowStepThreads, static_cast<std::uint32_t>(words)};
    return plan;
  }

 private:
  // The values that an operation reads and makes; SIZE_MAX: none.
  struct Uses {
    std::size_t a = SIZE_MAX;
    std::size_t b = SIZE_MAX;
    std::size_t made = SIZE_MAX;
    bool keeps_factor = false;
  };

  bool makes_row(std::size_t i) const {
    const RowStepKind kind = operations_[i].step.kind;
    return kind == RowStepKind::kNorm || kind == RowStepKind::kAdd;
  }

  // The last value at an address, or a new one.
  std::size_t find(const float* address, bool is_weight) {
    for (std::size_t v = values_.size(); v > 0; --v) {
      if (values_[v - 1].address == address && values_[v - 1].is_weight == is_weight) return v - 1;
    }
    values_.push_back({address, is_weight});
    return values_.size() - 1;
  }

  void add(std::size_t i) {
    const RowOperation& operation = operations_[i];
    const bool is_norm = operation.step.kind == RowStepKind::kNorm;
    Uses uses;
    uses.a = find(operation.a, false);
    values_[uses.a].last_use = i;
    if (operation.b != nullptr) {
      uses.b = find(operation.b, is_norm || operation.b_is_vector);
      values_[uses.b].last_use = i;
    }
    if (is_norm) {
      uses.keeps_factor = normed_ == uses.a && eps_ == operation.step.number;
      normed_ = uses.a;
      eps_ = operation.step.number;
    }
    if (makes_row(i)) {
      values_.push_back({operation.step.out, false, true, i});
      uses.made = values_.size() - 1;
    }
    uses_.push_back(uses);
  }

  // Gives places to what is brought: weights, then rows.
  bool bring(device::RowStepsParams& params) {
    for (const bool weights : {true, false}) {
      for (Value& value : values_) {
        if (value.is_made || value.is_weight != weights) continue;
        if (num_places_ == device::kMaxRowPlaces) return false;
        if (reinterpret_cast<std::uintptr_t>(value.address) % alignof(device::FourWords) != 0) {
          return false;
        }
        params.brought[num_places_] = value.address;
        value.place = static_cast<std::int8_t>(num_places_++);
      }
      if (weights) params.num_weights = static_cast<std::int32_t>(num_places_);
    }
    params.num_brought = static_cast<std::int32_t>(num_places_);
    return true;
  }

  // Gives a place to what an operation makes: one that nobody reads any more, that of what it reads
  // itself too, or a new one.
  bool take_place(std::size_t i) {
    if (uses_[i].made == SIZE_MAX) return true;
    Value& made = values_[uses_[i].made];
    for (std::int64_t place = 0; place < num_places_; ++place) {
      const bool is_free = std::none_of(values_.begin(), values_.end(), [&](const Value& value) {
        return value.place == place && value.last_use > i;
      });
      if (!is_free) continue;
      made.place = static_cast<std::int8_t>(place);
      return true;
    }
    if (num_places_ == device::kMaxRowPlaces) return false;
    made.place = static_cast<std::int8_t>(num_places_++);
    return true;
  }

  device::RowStep step(std::size_t i) const {
    const Uses& uses = uses_[i];
    device::RowStep step = operations_[i].step;
    step.a = values_[uses.a].place;
    step.b = uses.b == SIZE_MAX ? std::int8_t{-1} : values_[uses.b].place;
    // Rows that are copied are put back where they were.
    step.made = uses.made == SIZE_MAX ? step.a : values_[uses.made].place;
    step.keeps_factor = uses.keeps_factor;
    return step;
  }

  std::span<const RowOperation> operations_;
  std::vector<Value> values_;
  std::vector<Uses> uses_;
  std::size_t normed_ = SIZE_MAX;
  float eps_ = 0.0F;
  std::int64_t num_places_ = 0;
};

}  // namespace

std::optional<RowStepPlan> plan_row_steps(std::span<const RowOperation> operations,
                                          std::int64_t rows,
                                          std::int64_t width) {
  if (operations.size() > device::kMaxRowSteps) return std::nullopt;
  return Planning(operations).run(rows, width);
}

}  // namespace kakeya::cuda
