// Operations on rows made of MLX's own: the specification of the kernels, and what runs where there
// are none.
#include <cmath>
#include <cstdint>
#include <memory>
#include <numbers>
#include <numeric>
#include <optional>
#include <vector>

#include "backend/mlx/mlx_row_operations.h"
#include "backend/mlx/mlx_space.h"

namespace kakeya::mlx {
namespace {

mx::array counted(int count) {
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return mx::array(numbers.data(), mx::Shape{count}, mx::int32);
}

class ComposedOperations final : public RowOperations {
 public:
  using RowOperations::RowOperations;

  mx::array rms_norm(const mx::array& x,
                     const std::optional<mx::array>& weight,
                     std::int64_t width,
                     float eps) const override {
    const mx::array rows = mx::reshape(x, mx::Shape{-1, to_int(width)}, s_);
    return mx::reshape(mx::fast::rms_norm(rows, weight, eps, s_), x.shape(), s_);
  }

  mx::array rotation(const mx::array& x,
                     const mx::array& cos,
                     const mx::array& sin,
                     std::int64_t half) const override {
    const int rows = cos.shape(0);
    const mx::array vectors = mx::reshape(x, mx::Shape{rows, -1, 2 * to_int(half)}, s_);
    const std::vector<mx::array> halves = mx::split(vectors, 2, -1, s_);
    const mx::array c = mx::reshape(cos, mx::Shape{rows, 1, to_int(half)}, s_);
    const mx::array s = mx::reshape(sin, mx::Shape{rows, 1, to_int(half)}, s_);
    const mx::array first =
        mx::subtract(mx::multiply(halves[0], c, s_), mx::multiply(halves[1], s, s_), s_);
    const mx::array second =
        mx::add(mx::multiply(halves[1], c, s_), mx::multiply(halves[0], s, s_), s_);
    return mx::reshape(mx::concatenate({first, second}, -1, s_), x.shape(), s_);
  }

  mx::array gate(GateActivation activation,
                 const mx::array& gate,
                 const mx::array& other) const override {
    if (activation == GateActivation::kSilu) {
      return mx::multiply(mx::multiply(gate, mx::sigmoid(gate, s_), s_), other, s_);
    }
    const auto number = [](double value) { return mx::array(static_cast<float>(value)); };
    const mx::array cube = mx::multiply(gate, mx::square(gate, s_), s_);
    const mx::array inner =
        mx::multiply(mx::add(gate, mx::multiply(cube, number(0.044715), s_), s_),
                     number(std::sqrt(2.0 / std::numbers::pi)), s_);
    const mx::array share =
        mx::multiply(mx::add(mx::tanh(inner, s_), number(1.0), s_), number(0.5), s_);
    return mx::multiply(mx::multiply(gate, share, s_), other, s_);
  }

  mx::array weighted_sum(const mx::array& x,
                         const mx::array& factors,
                         std::int64_t width) const override {
    const int rows = factors.shape(0);
    const int ranks = factors.shape(1);
    const mx::array terms = mx::multiply(mx::reshape(x, mx::Shape{rows, ranks, to_int(width)}, s_),
                                         mx::reshape(factors, mx::Shape{rows, ranks, 1}, s_), s_);
    return mx::sum(terms, 1, false, s_);
  }

  mx::array add(const mx::array& a, const mx::array& b, float scale) const override {
    return mx::multiply(mx::add(a, b, s_), mx::array(scale), s_);
  }

  // An expert's rank is the number of those that come before it. MLX's sorts promise no order of
  // equal ones.
  Routes route(const mx::array& logits,
               const mx::array& scales,
               std::int64_t top_k) const override {
    const int rows = logits.shape(0);
    const int experts = logits.shape(1);
    const mx::array own = mx::reshape(logits, mx::Shape{rows, experts, 1}, s_);
    const mx::array other = mx::reshape(logits, mx::Shape{rows, 1, experts}, s_);
    const mx::array ids = counted(experts);
    const mx::array is_lower = mx::less(mx::reshape(ids, mx::Shape{1, 1, experts}, s_),
                                        mx::reshape(ids, mx::Shape{1, experts, 1}, s_), s_);
    const mx::array comes_before = mx::logical_or(
        mx::greater(other, own, s_), mx::logical_and(mx::equal(other, own, s_), is_lower, s_), s_);
    const mx::array ranks = mx::sum(mx::astype(comes_before, mx::int32, s_), -1, false, s_);
    const mx::array has_rank =
        mx::equal(mx::reshape(ranks, mx::Shape{rows, 1, experts}, s_),
                  mx::reshape(counted(to_int(top_k)), mx::Shape{1, to_int(top_k), 1}, s_), s_);
    const mx::array chosen = mx::argmax(mx::astype(has_rank, mx::int32, s_), -1, false, s_);
    const mx::array shares =
        mx::softmax(mx::take_along_axis(logits, chosen, -1, s_), std::vector<int>{-1}, true, s_);
    return {chosen, mx::multiply(shares, mx::take(scales, chosen, s_), s_)};
  }
};

}  // namespace

std::unique_ptr<RowOperations> composed_operations(mx::Stream stream) {
  return std::make_unique<ComposedOperations>(stream);
}

}  // namespace kakeya::mlx
