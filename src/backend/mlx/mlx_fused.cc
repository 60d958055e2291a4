// Operations on rows as primitives of this backend's own, for MLX's CPU device.
#include <mlx/backend/common/utils.h>
#include <mlx/backend/cpu/encoder.h>
#include <mlx/primitives.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <numbers>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "backend/mlx/mlx_row_operations.h"
#include "backend/mlx/mlx_space.h"

namespace kakeya::mlx {
namespace {

using Row = std::span<const float>;
// Makes one row of one row of each input.
using RowKernel = std::function<void(std::span<const Row> inputs, std::span<float> out)>;

struct Input {
  mx::array rows;  // f32
  std::int64_t width;
};

// An input of a fused operation, with what has been computed of it.
class Source {
 public:
  Source(const mx::array& array, std::int64_t width)
      : data_(array.data<float>()),
        shape_(array.shape()),
        strides_(array.strides()),
        is_contiguous_(array.flags().row_contiguous),
        width_(static_cast<std::size_t>(width)),
        rows_(static_cast<std::int64_t>(array.size()) / width) {}

  // The row for number `index` of `count`: each serves as many neighbours as it must, so that
  // nothing has to be broadcast. Valid until the next call.
  Row row(std::int64_t index, std::int64_t count) {
    const auto first = static_cast<std::size_t>(index * rows_ / count) * width_;
    if (is_contiguous_) return {data_ + first, width_};
    gathered_.resize(width_);
    for (std::size_t i = 0; i < width_; ++i) {
      gathered_[i] = data_[mx::elem_to_loc(static_cast<int>(first + i), shape_, strides_)];
    }
    return gathered_;
  }

 private:
  const float* data_;
  mx::Shape shape_;
  mx::Strides strides_;
  bool is_contiguous_;
  std::size_t width_;
  std::int64_t rows_;
  std::vector<float> gathered_;
};

class RowPrimitive final : public mx::Primitive {
 public:
  RowPrimitive(mx::Stream stream,
               const char* name,
               std::vector<std::int64_t> widths,
               std::int64_t width,
               RowKernel kernel)
      : Primitive(stream),
        name_(name),
        widths_(std::move(widths)),
        width_(width),
        kernel_(std::move(kernel)) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    mx::array& out = outputs.front();
    out.set_data(mx::allocator::malloc(out.nbytes()));
    std::vector<Source> sources;
    for (std::size_t i = 0; i < inputs.size(); ++i) sources.emplace_back(inputs[i], widths_[i]);
    mx::cpu::get_command_encoder(stream()).dispatch(
        [kernel = kernel_, sources = std::move(sources), to = out.data<float>(), width = width_,
         count = static_cast<std::int64_t>(out.size()) / width_]() mutable {
          std::vector<Row> rows(sources.size());
          for (std::int64_t t = 0; t < count; ++t) {
            for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = sources[i].row(t, count);
            kernel(rows, {to + t * width, static_cast<std::size_t>(width)});
          }
        });
  }
  void eval_gpu(const std::vector<mx::array>& /*inputs*/,
                std::vector<mx::array>& /*outputs*/) override {
    throw std::logic_error("this primitive is for the CPU device alone");
  }
  const char* name() const override { return name_; }

 private:
  const char* name_;
  std::vector<std::int64_t> widths_;  // of the inputs' rows
  std::int64_t width_;
  RowKernel kernel_;
};

// An output of this shape, in rows of `width`.
mx::array by_rows(const char* name,
                  const std::vector<Input>& inputs,
                  mx::Shape shape,
                  std::int64_t width,
                  RowKernel kernel,
                  mx::Stream stream) {
  std::vector<mx::array> arrays;
  std::vector<std::int64_t> widths;
  for (const Input& input : inputs) {
    arrays.push_back(input.rows);
    widths.push_back(input.width);
  }
  return mx::array(
      std::move(shape), mx::float32,
      std::make_shared<RowPrimitive>(stream, name, std::move(widths), width, std::move(kernel)),
      std::move(arrays));
}

// One row's experts and their weights, as the reference has them. Not sorted: a row of NaN would
// break the order that a sort needs.
void route_row(Row logits, Row scales, std::span<std::uint32_t> experts, std::span<float> weights) {
  for (std::size_t rank = 0; rank < experts.size(); ++rank) {
    const auto chosen = experts.first(rank);
    std::optional<std::uint32_t> best;
    for (std::uint32_t e = 0; e < logits.size(); ++e) {
      if (best && !(logits[e] > logits[*best])) continue;  // of equal ones the lower id stays
      if (std::ranges::find(chosen, e) == chosen.end()) best = e;
    }
    experts[rank] = best.value_or(0);
  }
  const double largest = logits[experts.front()];
  double sum = 0.0;
  for (const std::uint32_t e : experts) sum += std::exp(logits[e] - largest);
  for (std::size_t i = 0; i < experts.size(); ++i) {
    const double share = std::exp(logits[experts[i]] - largest) / sum;
    weights[i] = static_cast<float>(share * scales[experts[i]]);
  }
}

class RoutePrimitive final : public mx::Primitive {
 public:
  RoutePrimitive(mx::Stream stream, std::int64_t num_experts, std::int64_t top_k)
      : Primitive(stream), num_experts_(num_experts), top_k_(top_k) {}

  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    for (mx::array& out : outputs) out.set_data(mx::allocator::malloc(out.nbytes()));
    mx::cpu::get_command_encoder(stream()).dispatch(
        [logits = Source(inputs[0], num_experts_), scales = Source(inputs[1], num_experts_),
         experts = outputs[0].data<std::uint32_t>(), weights = outputs[1].data<float>(),
         top_k = static_cast<std::size_t>(top_k_),
         count = static_cast<std::int64_t>(outputs[0].size()) / top_k_]() mutable {
          for (std::int64_t t = 0; t < count; ++t) {
            const std::size_t at = static_cast<std::size_t>(t) * top_k;
            route_row(logits.row(t, count), scales.row(t, count), {experts + at, top_k},
                      {weights + at, top_k});
          }
        });
  }
  void eval_gpu(const std::vector<mx::array>& /*inputs*/,
                std::vector<mx::array>& /*outputs*/) override {
    throw std::logic_error("this primitive is for the CPU device alone");
  }
  const char* name() const override { return "Route"; }

 private:
  std::int64_t num_experts_;
  std::int64_t top_k_;
};

// The sum of squares, in lanes, so that one addition need not wait for the other.
float sum_of_squares(Row x) {
  constexpr std::size_t kLanes = 16;
  std::array<float, kLanes> lanes{};
  std::size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += x[i + lane] * x[i + lane];
  }
  float sum = 0.0F;
  for (; i < x.size(); ++i) sum += x[i] * x[i];
  for (const float lane : lanes) sum += lane;
  return sum;
}

float gelu(float x) {
  const auto slope = static_cast<float>(std::sqrt(2.0 / std::numbers::pi));
  return 0.5F * x * (1.0F + std::tanh(slope * (x + 0.044715F * (x * x * x))));
}

float silu(float x) {
  return x / (1.0F + std::exp(-x));
}

class FusedOperations final : public RowOperations {
 public:
  using RowOperations::RowOperations;
  mx::array rms_norm(const mx::array& x,
                     const std::optional<mx::array>& weight,
                     std::int64_t width,
                     float eps) const override;
  mx::array rotation(const mx::array& x,
                     const mx::array& cos,
                     const mx::array& sin,
                     std::int64_t half) const override;
  mx::array gate(GateActivation activation,
                 const mx::array& gate,
                 const mx::array& other) const override;
  mx::array weighted_sum(const mx::array& x,
                         const mx::array& factors,
                         std::int64_t width) const override;
  mx::array add(const mx::array& a, const mx::array& b, float scale) const override;
  Routes route(const mx::array& logits, const mx::array& scales, std::int64_t top_k) const override;
};

mx::array FusedOperations::rms_norm(const mx::array& x,
                                    const std::optional<mx::array>& weight,
                                    std::int64_t width,
                                    float eps) const {
  const auto kernel = [eps](std::span<const Row> inputs, std::span<float> out) {
    const Row row = inputs[0];
    const float mean = sum_of_squares(row) / static_cast<float>(row.size());
    const float scale = 1.0F / std::sqrt(mean + eps);
    for (std::size_t i = 0; i < row.size(); ++i) out[i] = row[i] * scale;
    if (inputs.size() == 1) return;
    for (std::size_t i = 0; i < row.size(); ++i) out[i] *= inputs[1][i];
  };
  std::vector<Input> inputs{{x, width}};
  if (weight) inputs.push_back({*weight, width});
  return by_rows("RmsNorm", inputs, x.shape(), width, kernel, s_);
}

mx::array FusedOperations::rotation(const mx::array& x,
                                    const mx::array& cos,
                                    const mx::array& sin,
                                    std::int64_t half) const {
  const auto kernel = [](std::span<const Row> inputs, std::span<float> out) {
    const Row row = inputs[0];
    const Row c = inputs[1];
    const Row s = inputs[2];
    for (std::size_t i = 0, j = c.size(); i < c.size(); ++i, ++j) {
      out[i] = row[i] * c[i] - row[j] * s[i];
      out[j] = row[j] * c[i] + row[i] * s[i];
    }
  };
  return by_rows("Rotation", {{x, 2 * half}, {cos, half}, {sin, half}}, x.shape(), 2 * half, kernel,
                 s_);
}

mx::array FusedOperations::gate(GateActivation activation,
                                const mx::array& gate,
                                const mx::array& other) const {
  const auto kernel = [activation](std::span<const Row> inputs, std::span<float> out) {
    const Row gates = inputs[0];
    const Row others = inputs[1];
    if (activation == GateActivation::kSilu) {
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = silu(gates[i]) * others[i];
    } else {
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = gelu(gates[i]) * others[i];
    }
  };
  const std::int64_t width = gate.shape(-1);
  return by_rows("Gate", {{gate, width}, {other, width}}, gate.shape(), width, kernel, s_);
}

mx::array FusedOperations::weighted_sum(const mx::array& x,
                                        const mx::array& factors,
                                        std::int64_t width) const {
  const auto kernel = [](std::span<const Row> inputs, std::span<float> out) {
    const Row row = inputs[0];
    const Row weights = inputs[1];
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = row[i] * weights[0];
    for (std::size_t r = 1; r < weights.size(); ++r) {
      const Row next = row.subspan(r * out.size(), out.size());
      for (std::size_t i = 0; i < out.size(); ++i) out[i] += next[i] * weights[r];
    }
  };
  const std::int64_t ranks = factors.shape(-1);
  return by_rows("WeightedSum", {{x, ranks * width}, {factors, ranks}},
                 mx::Shape{factors.shape(0), to_int(width)}, width, kernel, s_);
}

mx::array FusedOperations::add(const mx::array& a, const mx::array& b, float scale) const {
  const auto kernel = [scale](std::span<const Row> inputs, std::span<float> out) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = (inputs[0][i] + inputs[1][i]) * scale;
  };
  const std::int64_t width = a.shape(-1);
  return by_rows("ScaledAdd", {{a, width}, {b, width}}, a.shape(), width, kernel, s_);
}

Routes FusedOperations::route(const mx::array& logits,
                              const mx::array& scales,
                              std::int64_t top_k) const {
  const mx::Shape shape{logits.shape(0), to_int(top_k)};
  const auto primitive = std::make_shared<RoutePrimitive>(s_, logits.shape(1), top_k);
  const std::vector<mx::array> outputs = mx::array::make_arrays(
      {shape, shape}, {mx::uint32, mx::float32}, primitive, {logits, scales});
  return {outputs[0], outputs[1]};
}

}  // namespace

std::unique_ptr<RowOperations> fused_operations(mx::Stream stream) {
  return std::make_unique<FusedOperations>(stream);
}

}  // namespace kakeya::mlx
