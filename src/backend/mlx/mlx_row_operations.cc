#include "backend/mlx/mlx_row_operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <exception>
#include <optional>
#include <vector>

#include "backend/mlx/mlx_space.h"

namespace kakeya::mlx {
namespace {

// Two ways to compute sums of at most 512 terms of about 1 differ by roundings.
constexpr float kClose = 1e-4F;
// MLX may multiply matrices of f32 with 10 bits of fraction on some GPUs. A wrong angle differs by
// half.
constexpr float kCloseOfProducts = 1e-2F;

// Arrays of small numbers that are alike on every machine.
class Inputs {
 public:
  explicit Inputs(mx::Stream stream) : s_(stream) {}

  mx::array numbers(const mx::Shape& shape) {
    return mx::random::uniform(-1.0F, 1.0F, shape, mx::float32, key(), s_);
  }
  // Numbers of few values, so that many are equal.
  mx::array steps(const mx::Shape& shape) {
    return mx::astype(mx::random::randint(-2, 3, shape, mx::int32, key(), s_), mx::float32, s_);
  }

 private:
  mx::array key() { return mx::random::key(++seed_); }

  const mx::Stream s_;
  std::uint64_t seed_ = 0;
};

struct Named {
  const char* name;
  mx::array value;
  float close = kClose;
};

AttentionRows small_attention(Inputs& inputs, mx::Dtype stored, bool has_keys, mx::Stream s) {
  constexpr int kRows = 3;
  constexpr int kHeads = 2;
  constexpr int kGroup = 8;
  constexpr int kHeadDim = 512;
  constexpr int kValues = 320;
  // Row t sees all but the last 2 - t values.
  std::vector<char> seen;
  for (int query = 0; query < kRows * kGroup; ++query) {
    for (int n = 0; n < kValues; ++n) seen.push_back(n < kValues - 2 + query / kGroup ? 1 : 0);
  }
  const auto vectors = [&] {
    return mx::astype(inputs.numbers({1, kValues, kHeads, kHeadDim}), stored, s);
  };
  AttentionRows rows{.queries = inputs.numbers({1, kHeads, kRows * kGroup, kHeadDim}),
                     .keys = vectors(),
                     .values = vectors(),
                     .seen = mx::array(reinterpret_cast<const bool*>(seen.data()),
                                       mx::Shape{kRows * kGroup, kValues}, mx::bool_),
                     .spans = {0, 256, kValues},
                     .scale = 0.5F,
                     .rows = kRows};
  if (!has_keys) {
    rows.keys = DerivedKeys{.k_norm = inputs.numbers({kHeadDim}),
                            .cos = inputs.numbers({kValues, kHeadDim / 2}),
                            .sin = inputs.numbers({kValues, kHeadDim / 2})};
  }
  return rows;
}

// The results of the operations for some small inputs.
std::vector<Named> results(const RowOperations& operations) {
  constexpr int kRows = 3;
  const mx::Stream s = operations.stream();
  Inputs inputs(s);
  std::vector<Named> all;
  const auto add = [&](const char* name, const mx::array& value) { all.push_back({name, value}); };
  const mx::array x = inputs.numbers({kRows, 320});
  const mx::array y = inputs.numbers({kRows, 320});
  add("rms_norm", operations.rms_norm(x, inputs.numbers({320}), 320, 1e-6F));
  add("rotation",
      operations.rotation(x, inputs.numbers({kRows, 32}), inputs.numbers({kRows, 32}), 32));
  add("gate (GELU)", operations.gate(GateActivation::kGeluTanh, x, y));
  add("gate (SiLU)", operations.gate(GateActivation::kSilu, x, y));
  add("add", operations.add(x, y, 0.25F));
  add("weighted_sum",
      operations.weighted_sum(inputs.numbers({kRows, 8, 1, 64}), inputs.numbers({kRows, 8}), 64));
  const Routes routes = operations.route(inputs.steps({kRows, 130}), inputs.numbers({1, 130}), 8);
  add("route (experts)", mx::astype(routes.experts, mx::float32, s));
  add("route (weights)", routes.weights);
  for (const mx::Dtype stored : {mx::float32, mx::bfloat16}) {
    for (const bool has_keys : {true, false}) {
      all.push_back({has_keys ? "attention" : "attention over values alone",
                     operations.attention(small_attention(inputs, stored, has_keys, s)),
                     kCloseOfProducts});
    }
  }
  return all;
}

}  // namespace

mx::array RowOperations::keys_of(const mx::array& values, const DerivedKeys& derived) const {
  return rotation(mx::multiply(values, derived.k_norm, s_), derived.cos, derived.sin,
                  derived.k_norm.shape(0) / 2);
}

mx::array RowOperations::attention(const AttentionRows& input) const {
  const auto as_f32 = [&](const mx::array& x) {
    return x.dtype() == mx::float32 ? x : mx::astype(x, mx::float32, s_);
  };
  const mx::array values = as_f32(input.values);
  const auto* const derived = std::get_if<DerivedKeys>(&input.keys);
  const mx::array keys =
      derived != nullptr ? keys_of(values, *derived) : as_f32(std::get<mx::array>(input.keys));
  return mx::fast::scaled_dot_product_attention(
      input.queries, mx::transpose(keys, {0, 2, 1, 3}, s_), mx::transpose(values, {0, 2, 1, 3}, s_),
      input.scale, "", input.seen, std::nullopt, false, s_);
}

std::unique_ptr<RowOperations> create_row_operations(RowOperationsKind kind, mx::Stream stream) {
  return kind == RowOperationsKind::kKernels ? kernel_operations(stream)
                                             : composed_operations(stream);
}

std::string compare_operations(const RowOperations& tried, const RowOperations& specified) {
  try {
    const std::vector<Named> found = results(tried);
    const std::vector<Named> wanted = results(specified);
    for (std::size_t i = 0; i < found.size(); ++i) {
      const mx::Stream s = tried.stream();
      const mx::array far =
          mx::max(mx::abs(mx::subtract(mx::reshape(found[i].value, wanted[i].value.shape(), s),
                                       wanted[i].value, s),
                          s),
                  s);
      const auto difference = mx::contiguous(far, false, s).item<float>();
      if (!(difference <= wanted[i].close)) {
        return fmt::format("{} differs by {:.2g}", found[i].name, difference);
      }
    }
  } catch (const std::exception& exception) {
    return exception.what();
  }
  return "";
}

}  // namespace kakeya::mlx
