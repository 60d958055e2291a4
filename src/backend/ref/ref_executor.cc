// Row-wise operations and matrix products of the reference backend.
#include "backend/ref/ref_executor.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

#include "backend/host_rows.h"
#include "backend/ref/ref_matrix.h"

namespace kakeya::ref {
namespace {

const RefMatrix& as_ref(const Matrix& matrix) {
  return static_cast<const RefMatrix&>(matrix);
}

// A row as products with integers see it: fast_integers() of the seam.
class RoundedRow {
 public:
  RoundedRow(const float* x, std::int64_t width) : codes_(static_cast<std::size_t>(width)) {
    for (std::int64_t begin = 0; begin < width; begin += kIntegerBlock) {
      float largest = 0.0F;
      for (std::int64_t k = 0; k < kIntegerBlock; ++k) {
        largest = std::max(largest, std::fabs(x[begin + k]));
      }
      const bool tiny = !(largest > 1e-36F);
      steps_.push_back(tiny ? 0.0F : largest / 127.0F);
      const float inverse = tiny ? 0.0F : 127.0F / largest;
      for (std::int64_t k = 0; k < kIntegerBlock; ++k) {
        // NaN becomes 127.
        const float code = std::nearbyint(x[begin + k] * inverse);
        codes_[static_cast<std::size_t>(begin + k)] =
            static_cast<int>(code < 127.0F ? std::max(code, -127.0F) : 127.0F);
      }
    }
  }

  // The product with a row of blocks.
  float dot(const IntegerBlock* blocks, const IntegerFormat& format) const {
    const std::int64_t columns = std::min(format.group, kIntegerBlock);
    float sum = 0.0F;
    for (std::size_t begin = 0; begin < codes_.size(); begin += static_cast<std::size_t>(columns)) {
      const std::size_t run = begin / static_cast<std::size_t>(kIntegerBlock);
      const std::size_t first = begin % static_cast<std::size_t>(kIntegerBlock);
      const std::size_t half = first / static_cast<std::size_t>(kSmallestIntegerGroup);
      int products = 0;
      int codes = 0;
      for (std::size_t k = 0; k < static_cast<std::size_t>(columns); ++k) {
        products += (blocks[run].codes[first + k] - format.zero) * codes_[begin + k];
        codes += codes_[begin + k];
      }
      sum = std::fma(static_cast<float>(products), blocks[run].scales[half] * steps_[run], sum);
      if (!format.has_minimum) continue;
      sum = std::fma(blocks[run].minimums[half], steps_[run] * static_cast<float>(codes), sum);
    }
    return sum;
  }

 private:
  std::vector<int> codes_;
  std::vector<float> steps_;
};

// Products of a row x [K] with the rows of w.
class RowProducts {
 public:
  RowProducts(const float* x, const RefMatrix& w)
      : x_(x), w_(w), rounded_(x, w.integers() ? w.cols() : 0) {}

  // With row n of matrix `index`.
  double dot(std::int64_t index, std::int64_t n) const {
    if (w_.integers()) {
      return static_cast<double>(rounded_.dot(w_.blocks(index, n), *w_.integers()));
    }
    double sum = 0.0;
    for (std::int64_t k = 0; k < w_.cols(); ++k) {
      const float value = w_.rounds_activations() ? to_float(to_bfloat16(x_[k])) : x_[k];
      sum += static_cast<double>(value) * static_cast<double>(w_.at(index, n, k));
    }
    return sum;
  }

 private:
  const float* x_;
  const RefMatrix& w_;
  RoundedRow rounded_;  // empty where rows are not rounded
};

// h [F] = activation(gate x) * (up x), for matrix `index` of each.
void gated_row(const float* x,
               const RefMatrix& gate,
               const RefMatrix& up,
               std::int64_t index,
               GateActivation activation,
               float* h) {
  const RowProducts gates(x, gate);
  const RowProducts ups(x, up);
  for (std::int64_t f = 0; f < gate.rows(); ++f) {
    const double g = activate(activation, gates.dot(index, f));
    h[f] = static_cast<float>(g * ups.dot(index, f));
  }
}

}  // namespace

double activate(GateActivation activation, double x) {
  if (activation == GateActivation::kSilu) return x / (1.0 + std::exp(-x));
  const double inner = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1.0 + std::tanh(inner));
}

void RefExecutor::embed(const Matrix& table, float scale, Rows out) {
  for (std::int64_t t = 0; t < out.count; ++t) {
    for (std::int64_t d = 0; d < out.width; ++d) {
      host_row(out, t)[d] =
          scale * as_ref(table).at(0, batch().ids[static_cast<std::size_t>(t)], d);
    }
  }
}

void RefExecutor::rms_norm(ConstRows x, DevicePointer<const float> weight, float eps, Rows out) {
  for (std::int64_t t = 0; t < x.count; ++t) {
    const float* row = host_row(x, t);
    double sum = 0.0;
    for (std::int64_t d = 0; d < x.width; ++d) sum += static_cast<double>(row[d]) * row[d];
    const double scale = 1.0 / std::sqrt(sum / static_cast<double>(x.width) + eps);
    for (std::int64_t d = 0; d < x.width; ++d) {
      const double w = weight ? weight.address()[d] : 1.0;
      host_row(out, t)[d] = static_cast<float>(row[d] * scale * w);
    }
  }
}

void RefExecutor::matmul(ConstRows x, const Matrix& w, Rows out) {
  count_bytes(w.bytes());
  for (std::int64_t t = 0; t < x.count; ++t) {
    const RowProducts products(host_row(x, t), as_ref(w));
    for (std::int64_t n = 0; n < out.width; ++n) {
      host_row(out, t)[n] = static_cast<float>(products.dot(0, n));
    }
  }
}

void RefExecutor::gated_matmul(
    ConstRows x, const Matrix& gate, const Matrix& up, GateActivation activation, Rows out) {
  count_bytes(gate.bytes() + up.bytes());
  for (std::int64_t t = 0; t < x.count; ++t) {
    gated_row(host_row(x, t), as_ref(gate), as_ref(up), 0, activation, host_row(out, t));
  }
}

void RefExecutor::gated_multiply(ConstRows gate,
                                 DevicePointer<const float> other,
                                 std::int64_t other_stride,
                                 GateActivation activation,
                                 Rows out) {
  for (std::int64_t t = 0; t < gate.count; ++t) {
    for (std::int64_t d = 0; d < gate.width; ++d) {
      const double g = activate(activation, host_row(gate, t)[d]);
      host_row(out, t)[d] = static_cast<float>(g * other.address()[t * other_stride + d]);
    }
  }
}

void RefExecutor::experts(ConstRows x,
                          const ExpertWeights& weights,
                          const Routing& routing,
                          GateActivation activation,
                          Rows out) {
  const RefMatrix& down = as_ref(*weights.down);
  const std::int32_t* const experts = routing.experts.address();
  const std::set<std::int32_t> chosen(experts, experts + x.count * routing.top_k);
  count_bytes(chosen.size() *
              (weights.gate->bytes() + weights.up->bytes() + weights.down->bytes()));
  std::vector<float> h(static_cast<std::size_t>(weights.gate->rows()));
  for (std::int64_t t = 0; t < x.count; ++t) {
    float* row = host_row(out, t);
    for (std::int64_t d = 0; d < out.width; ++d) row[d] = 0.0F;
    for (std::int64_t r = 0; r < routing.top_k; ++r) {
      const std::int64_t expert = experts[t * routing.top_k + r];
      const float weight = routing.weights.address()[t * routing.top_k + r];
      gated_row(host_row(x, t), as_ref(*weights.gate), as_ref(*weights.up), expert, activation,
                h.data());
      const RowProducts outputs(h.data(), down);
      for (std::int64_t d = 0; d < out.width; ++d) {
        row[d] += weight * static_cast<float>(outputs.dot(expert, d));
      }
    }
  }
}

void RefExecutor::add(ConstRows a, ConstRows b, float scale, Rows out) {
  for (std::int64_t t = 0; t < a.count; ++t) {
    for (std::int64_t d = 0; d < a.width; ++d) {
      host_row(out, t)[d] = (host_row(a, t)[d] + host_row(b, t)[d]) * scale;
    }
  }
}

void RefExecutor::softcap(Rows x, float cap) {
  for (std::int64_t t = 0; t < x.count; ++t) {
    for (std::int64_t d = 0; d < x.width; ++d) {
      float& value = host_row(x, t)[d];
      value = static_cast<float>(cap * std::tanh(static_cast<double>(value) / cap));
    }
  }
}

void RefExecutor::gather_logit_rows(ConstRows x, Rows out) {
  std::int64_t to = 0;
  for (const Segment& segment : batch().segments) {
    for (std::int64_t t = segment.rows - segment.logit_rows; t < segment.rows; ++t, ++to) {
      for (std::int64_t d = 0; d < x.width; ++d) {
        host_row(out, to)[d] = host_row(x, segment.first_row + t)[d];
      }
    }
  }
}

void RefExecutor::copy_columns(ConstRows x,
                               DevicePointer<float> out,
                               std::int64_t out_width,
                               std::int64_t column) {
  for (std::int64_t t = 0; t < x.count; ++t) {
    for (std::int64_t d = 0; d < x.width; ++d) {
      out.address()[t * out_width + column + d] = host_row(x, t)[d];
    }
  }
}

}  // namespace kakeya::ref
