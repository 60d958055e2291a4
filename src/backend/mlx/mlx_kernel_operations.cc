// Operations on rows as kernels of this backend's own: what MLX has none for, or several.
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "backend/mlx/mlx_kernels.h"
#include "backend/mlx/mlx_row_operations.h"
#include "backend/mlx/mlx_space.h"

namespace kakeya::mlx {
namespace {

// The sizes that the kernels' texts have bits, lanes and registers for.
constexpr int kMostExperts = 1024;
constexpr int kMostRanks = 32;
constexpr int kMostHeadDim = 512;

class KernelOperations final : public RowOperations {
 public:
  explicit KernelOperations(mx::Stream stream)
      : RowOperations(stream), composed_(composed_operations(stream)) {}

  // MLX has one.
  mx::array rms_norm(const mx::array& x,
                     const std::optional<mx::array>& weight,
                     std::int64_t width,
                     float eps) const override {
    return composed_->rms_norm(x, weight, width, eps);
  }

  mx::array rotation(const mx::array& x,
                     const mx::array& cos,
                     const mx::array& sin,
                     std::int64_t half) const override {
    const mx::array vectors = mx::reshape(x, mx::Shape{cos.shape(0), -1, 2 * to_int(half)}, s_);
    return mx::reshape(
        run(Kernel::kRotation, {vectors, cos, sin}, vectors.shape(), {.x = size_of(x) / 2}),
        x.shape(), s_);
  }

  mx::array gate(GateActivation activation,
                 const mx::array& gate,
                 const mx::array& other) const override {
    return run(
        Kernel::kGate, {gate, other}, gate.shape(),
        {.x = size_of(gate), .constants = {{"is_silu", activation == GateActivation::kSilu}}});
  }

  mx::array weighted_sum(const mx::array& x,
                         const mx::array& factors,
                         std::int64_t width) const override {
    const int rows = factors.shape(0);
    const mx::array ranks = mx::reshape(x, mx::Shape{rows, factors.shape(1), to_int(width)}, s_);
    return run(Kernel::kWeightedSum, {ranks, factors}, mx::Shape{rows, to_int(width)},
               {.x = rows * to_int(width)});
  }

  mx::array add(const mx::array& a, const mx::array& b, float scale) const override {
    return run(Kernel::kScaledAdd, {a, b, mx::array(scale)}, a.shape(), {.x = size_of(a)});
  }

  Routes route(const mx::array& logits,
               const mx::array& scales,
               std::int64_t top_k) const override {
    if (logits.shape(1) > kMostExperts || top_k > kMostRanks) {
      return composed_->route(logits, scales, top_k);
    }
    const mx::Shape shape{logits.shape(0), to_int(top_k)};
    const KernelLaunch launch{
        .x = logits.shape(0), .are_simdgroups = true, .constants = {{"top_k", to_int(top_k)}}};
    const std::vector<mx::array> outputs = run_kernel(
        Kernel::kRoute, {logits, scales}, {{shape, shape}, {mx::uint32, mx::float32}}, launch, s_);
    return {outputs[0], outputs[1]};
  }

  mx::array attention(const AttentionRows& input) const override {
    const mx::Shape& shape = input.queries.shape();  // [1, K, Q, E]
    const int heads = shape[1];
    const int queries = shape[2];
    const int head_dim = shape[3];
    // The sums of all spans would be large, too.
    const bool is_for_products = s_.device == mx::Device::gpu && input.rows > kMostSingleRows;
    if (head_dim > kMostHeadDim || is_for_products) return RowOperations::attention(input);
    const auto vectors = [&](const mx::array& x) {
      return mx::reshape(x, mx::Shape{-1, heads, head_dim}, s_);
    };
    const mx::array values = vectors(input.values);
    const mx::array rows = mx::reshape(input.queries, mx::Shape{heads, queries, head_dim}, s_);
    const auto* const derived = std::get_if<DerivedKeys>(&input.keys);
    // A kernel has all its inputs, so another array stands for one that it does not read.
    const mx::array keys = derived != nullptr ? values : vectors(std::get<mx::array>(input.keys));
    const DerivedKeys derivation = derived != nullptr ? *derived : DerivedKeys{rows, rows, rows};
    const int spans = to_int(std::ssize(input.spans)) - 1;
    const KernelLaunch launch{
        .x = spans,
        .y = queries,
        .z = heads,
        .are_simdgroups = true,
        .constants = {{"pairs", (head_dim / 2 + 31) / 32}, {"has_keys", derived == nullptr}}};
    const std::vector<mx::array> parts = run_kernel(
        Kernel::kAttentionSpan,
        {rows, keys, values, derivation.k_norm, derivation.cos, derivation.sin, input.seen,
         mx::array(input.spans.data(), mx::Shape{spans + 1}, mx::int32), mx::array(input.scale)},
        {{mx::Shape{heads * queries, spans, head_dim}, mx::Shape{heads * queries, spans, 2}},
         {mx::float32, mx::float32}},
        launch, s_);
    return run(Kernel::kJoinSpans, parts, shape, {.x = heads * queries * head_dim});
  }

 private:
  static int size_of(const mx::array& x) { return to_int(static_cast<std::int64_t>(x.size())); }

  mx::array run(Kernel kernel,
                const std::vector<mx::array>& inputs,
                mx::Shape shape,
                const KernelLaunch& launch) const {
    return run_kernel(kernel, inputs, {{std::move(shape)}, {mx::float32}}, launch, s_).front();
  }

  const std::unique_ptr<RowOperations> composed_;
};

}  // namespace

std::unique_ptr<RowOperations> kernel_operations(mx::Stream stream) {
  return std::make_unique<KernelOperations>(stream);
}

}  // namespace kakeya::mlx
