#include "backend/cuda/residual_plan.h"

#include <cstring>

#include "backend/cuda/device/residual_steps.h"

namespace kakeya::cuda {
namespace {

using device::RowStepKind;

// Takes operations one after the other, as long as they are what residual_steps() has next.
class Matching {
 public:
  Matching(std::span<const RowOperation> operations, std::int64_t width) : operations_(operations) {
    std::memset(&p_, 0, sizeof(p_));
    p_.width = width;
    p_.scale = 1.0F;
  }

  std::optional<device::ResidualStepsParams> run() {
    if (!take_terms() || !take_sum()) return std::nullopt;
    while (next_ < operations_.size()) {
      if (!take_copy() && !take_norm() && !take_rounding()) return std::nullopt;
    }
    return p_;
  }

 private:
  // The next operation, if it is of a kind. Vectors are no rows that residual_steps() could add.
  const RowOperation* next(RowStepKind kind) const {
    if (next_ == operations_.size() || operations_[next_].step.kind != kind) return nullptr;
    return operations_[next_].b_is_vector ? nullptr : &operations_[next_];
  }
  // All norms have one eps.
  bool has_eps(const RowOperation& norm) {
    if (has_norm_ && norm.step.number != p_.eps) return false;
    has_norm_ = true;
    p_.eps = norm.step.number;
    return true;
  }

  // norm(a), or norm(norm(a) + norm(b)), or a alone. `term_` is what is added to the stream.
  bool take_terms() {
    const RowOperation* const first = next(RowStepKind::kNorm);
    if (first == nullptr) return true;
    if (!has_eps(*first)) return false;
    p_.normalises = true;
    p_.a = {first->a, first->b, first->step.out};
    term_ = first->step.out;
    ++next_;
    const RowOperation* const second = next(RowStepKind::kNorm);
    return second == nullptr || take_second_term(*second);
  }
  bool take_second_term(const RowOperation& second) {
    if (!has_eps(second) || second.a == p_.a.out) return false;
    p_.b = {second.a, second.b, second.step.out};
    ++next_;
    const RowOperation* const sum = next(RowStepKind::kAdd);
    if (sum == nullptr || sum->step.number != 1.0F) return false;
    if (!adds(*sum, p_.a.out, p_.b.out) || p_.a.out == p_.b.out) return false;
    p_.sum_out = sum->step.out;
    ++next_;
    const RowOperation* const norm = next(RowStepKind::kNorm);
    if (norm == nullptr || !has_eps(*norm) || norm->a != p_.sum_out) return false;
    p_.sum_weight = norm->b;
    p_.normed_sum_out = norm->step.out;
    term_ = norm->step.out;
    ++next_;
    return true;
  }
  static bool adds(const RowOperation& sum, const float* one, const float* other) {
    return (sum.a == one && sum.b == other) || (sum.a == other && sum.b == one);
  }

  bool take_sum() {
    const RowOperation* const sum = next(RowStepKind::kAdd);
    if (sum == nullptr || sum->a == sum->b) return false;
    if (term_ == nullptr) {
      p_.a.x = sum->b;
      term_ = sum->b;
    }
    if (sum->a != term_ && sum->b != term_) return false;
    p_.x = sum->a == term_ ? sum->b : sum->a;
    // Made on the way, and so not what was there before.
    if (p_.x == p_.a.out || p_.x == p_.b.out || p_.x == p_.sum_out) return false;
    p_.scale = sum->step.number;
    p_.out = sum->step.out;
    ++next_;
    return true;
  }

  bool take_copy() {
    const RowOperation* const copy = next(RowStepKind::kCopy);
    if (copy == nullptr || p_.copy != nullptr || copy->a != p_.out || is_overwritten_) return false;
    p_.copy = copy->step.out + copy->step.column;
    p_.copy_width = copy->step.out_width;
    ++next_;
    return true;
  }
  bool take_norm() {
    const RowOperation* const norm = next(RowStepKind::kNorm);
    if (norm == nullptr || p_.num_norms == device::kResidualNorms) return false;
    if (!has_eps(*norm) || norm->a != p_.out || is_overwritten_) return false;
    for (std::int32_t k = 0; k < p_.num_norms; ++k) {
      if (p_.norms[k].out == norm->step.out) return false;
    }
    device::ResidualNorm& made = p_.norms[p_.num_norms++];
    made.weight = norm->b;
    made.out = norm->step.out;
    is_overwritten_ = norm->step.out == p_.out;
    ++next_;
    return true;
  }
  bool take_rounding() {
    const RowOperation* const round = next(RowStepKind::kRound);
    if (round == nullptr || !device::has_runs_in_segments(p_.width)) return false;
    for (std::int32_t k = 0; k < p_.num_norms; ++k) {
      device::ResidualNorm& norm = p_.norms[k];
      if (norm.out != round->a || norm.codes != nullptr) continue;
      norm.codes = round->step.codes;
      norm.numbers = round->step.numbers;
      norm.low_sums = round->step.low_sums;
      ++next_;
      return true;
    }
    return false;
  }

  std::span<const RowOperation> operations_;
  device::ResidualStepsParams p_;
  std::size_t next_ = 0;
  const float* term_ = nullptr;
  bool has_norm_ = false;
  bool is_overwritten_ = false;  // the sum, by a norm of it
};

}  // namespace

std::optional<device::ResidualStepsParams> plan_residual_steps(
    std::span<const RowOperation> operations, std::int64_t width) {
  if (width > device::kMaxResidualWidth) return std::nullopt;
  return Matching(operations, width).run();
}

}  // namespace kakeya::cuda
