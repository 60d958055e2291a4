// Row-wise operations and matrix products of the reference backend.
#include "backend/ref/ref_executor.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <set>
#include <vector>

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

// A row x [K] as products with the rows of a matrix see it: numbers or, beside integers, codes.
struct InputRow {
  InputRow(const float* x, const RefMatrix& w) {
    if (w.integers()) {
      codes.emplace(x, w.cols());
      return;
    }
    for (std::int64_t k = 0; k < w.cols(); ++k) {
      values.push_back(w.rounds_activations() ? to_float(to_bfloat16(x[k])) : x[k]);
    }
  }

  std::vector<double> values;
  std::optional<RoundedRow> codes;
};

// Row n of matrix `index` of `w`, made once for all rows that meet it.
class WeightRow {
 public:
  WeightRow(const RefMatrix& w, std::int64_t index, std::int64_t n) : w_(w) {
    if (w.integers()) {
      blocks_ = w.blocks(index, n);
    } else {
      values_ = w.row(index, n);
    }
  }

  double dot(const InputRow& x) const {
    if (x.codes) return static_cast<double>(x.codes->dot(blocks_, *w_.integers()));
    double sum = 0.0;
    for (std::size_t k = 0; k < values_.size(); ++k) {
      sum += x.values[k] * static_cast<double>(values_[k]);
    }
    return sum;
  }

 private:
  const RefMatrix& w_;
  const IntegerBlock* blocks_ = nullptr;
  std::vector<float> values_;  // empty where there are blocks
};

std::vector<InputRow> input_rows(ConstRows x, const RefMatrix& w) {
  std::vector<InputRow> rows;
  for (std::int64_t t = 0; t < x.count; ++t) rows.emplace_back(host_row(x, t), w);
  return rows;
}

// out [T, F] = activation(gate x) * (up x), for matrix `index` of each.
void gated_rows(ConstRows x,
                const RefMatrix& gate,
                const RefMatrix& up,
                std::int64_t index,
                GateActivation activation,
                Rows out) {
  const std::vector<InputRow> of_gate = input_rows(x, gate);
  const std::vector<InputRow> of_up = input_rows(x, up);
  for (std::int64_t f = 0; f < gate.rows(); ++f) {
    const WeightRow gate_row(gate, index, f);
    const WeightRow up_row(up, index, f);
    for (std::int64_t t = 0; t < x.count; ++t) {
      const auto row = static_cast<std::size_t>(t);
      const double g = activate(activation, gate_row.dot(of_gate[row]));
      host_row(out, t)[f] = static_cast<float>(g * up_row.dot(of_up[row]));
    }
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
    const std::vector<float> row = as_ref(table).row(0, batch().ids[static_cast<std::size_t>(t)]);
    for (std::int64_t d = 0; d < out.width; ++d) {
      host_row(out, t)[d] = scale * row[static_cast<std::size_t>(d)];
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
  const std::vector<InputRow> rows = input_rows(x, as_ref(w));
  for (std::int64_t n = 0; n < out.width; ++n) {
    const WeightRow weights(as_ref(w), 0, n);
    for (std::int64_t t = 0; t < x.count; ++t) {
      host_row(out, t)[n] = static_cast<float>(weights.dot(rows[static_cast<std::size_t>(t)]));
    }
  }
}

void RefExecutor::gated_matmul(
    ConstRows x, const Matrix& gate, const Matrix& up, GateActivation activation, Rows out) {
  count_bytes(gate.bytes() + up.bytes());
  gated_rows(x, as_ref(gate), as_ref(up), 0, activation, out);
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
      gated_rows(rows_from(x, t, 1), as_ref(*weights.gate), as_ref(*weights.up), expert, activation,
                 device_rows({h.data(), 1, weights.gate->rows()}));
      const InputRow inner(h.data(), down);
      for (std::int64_t d = 0; d < out.width; ++d) {
        row[d] += weight * static_cast<float>(WeightRow(down, expert, d).dot(inner));
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

void RefExecutor::add_vector(Rows x, ConstVector vector) {
  for (std::int64_t t = 0; t < x.count; ++t) {
    for (std::int64_t d = 0; d < x.width; ++d) host_row(x, t)[d] += vector.data.address()[d];
  }
}

void RefExecutor::convolve(ConstRows x, const RowConvolution& convolution, Rows out) {
  const std::int64_t groups = x.width / convolution.group;
  for (const Segment& segment : batch().segments) {
    for (std::int64_t r = 0; r < segment.rows; ++r) {
      const std::int64_t t = segment.first_row + r;
      const float* own = host_row(convolution.own, t) + convolution.column;
      for (std::int64_t d = 0; d < x.width; ++d) {
        float sum = 0.0F;
        for (std::int64_t o = 0; o < convolution.taps && o <= r; ++o) {
          const float base = convolution.base.data.address()[o * x.width + d];
          sum += (base + own[o * groups + d / convolution.group]) * host_row(x, t - o)[d];
        }
        host_row(out, t)[d] = sum;
      }
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
