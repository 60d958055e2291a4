// Every operation but attention of every backend against the reference, over odd and even shapes,
// weight types, compute modes and thread counts.
#include <algorithm>
#include <cmath>

#include "backend/parity_fixture.h"

namespace kakeya {
namespace {

INSTANTIATE_TEST_SUITE_P(AllSets,
                         OpParity,
                         testing::ValuesIn(fast_configurations({2})),
                         [](const auto& test) { return configuration_name(test.param); });

std::vector<float> absolute(std::vector<float> values) {
  for (float& value : values) value = std::fabs(value);
  return values;
}

struct ProductCase {
  std::int64_t rows, columns, outputs;
};
constexpr ProductCase kProducts[] = {{1, 44, 20},   {3, 32, 16},    {2, 1, 1},    {5, 33, 17},
                                     {16, 64, 64},  {17, 256, 100}, {33, 70, 24}, {64, 96, 48},
                                     {1, 2816, 40}, {7, 704, 300},  {31, 128, 36}};

struct Weights {
  DType dtype;
  Compute compute;
};
constexpr Weights kWeights[] = {{DType::kBF16, Compute::kFast},
                                {DType::kBF16, Compute::kF32},
                                {DType::kF32, Compute::kFast},
                                {DType::kF32, Compute::kF32},
                                {DType::kF16, Compute::kFast}};

std::string case_name(const ProductCase& c, const Weights& w) {
  return std::to_string(c.rows) + "x" + std::to_string(c.columns) + "x" +
         std::to_string(c.outputs) + " " + std::string(dtype_name(w.dtype)) +
         (w.compute == Compute::kFast ? " fast" : " f32");
}

// Products are exact in both (bf16 times bf16, or f32 with one rounding), so only the order and
// precision of the sum differ: K roundings of random sign, each 2^-24 of a partial sum that is
// below the sum of magnitudes. 8 standard deviations are 8 sqrt(K) 2^-24 of that.
TEST_P(OpParity, Matmul) {
  for (const ProductCase& c : kProducts) {
    for (const Weights& w : kWeights) {
      const Tensor weight = random_tensor({c.outputs, c.columns}, w.dtype, 1);
      const std::vector<float> x = random_floats(static_cast<std::size_t>(c.rows * c.columns), 2);
      std::vector<float> magnitudes =
          absolute(random_floats(static_cast<std::size_t>(c.outputs * c.columns), 1));
      const Tensor magnitude({c.outputs, c.columns}, w.dtype, magnitudes);
      const auto product = [&](Machine& machine, const Tensor& t, const std::vector<float>& rows) {
        auto matrix =
            machine.backend->load_matrix(t.view, computed(GetParam(), w.compute), machine.budget)
                .value();
        std::vector<float> out(static_cast<std::size_t>(c.rows * c.outputs), NAN);
        machine.executor->matmul(rows_of(rows, c.columns), *matrix, rows_of(out, c.outputs));
        return out;
      };
      std::vector<float> tolerance = product(ref_, magnitude, absolute(x));
      const float unit = 8.0F * std::sqrt(static_cast<float>(c.columns)) * 0x1p-24F;
      for (float& value : tolerance) value *= unit;
      expect_near(product(cpu_, weight, x), product(ref_, weight, x), tolerance, case_name(c, w));
    }
  }
}

// Outputs are of order 1, with sums as above; the activation's slope is at most 1.13.
TEST_P(OpParity, GatedMatmul) {
  for (const ProductCase& c : kProducts) {
    for (const Weights& w : kWeights) {
      const float scale = 2.0F / std::sqrt(static_cast<float>(c.columns));
      const Tensor gate = random_tensor({c.outputs, c.columns}, w.dtype, 3, scale);
      const Tensor up = random_tensor({c.outputs, c.columns}, w.dtype, 4, scale);
      const std::vector<float> x = random_floats(static_cast<std::size_t>(c.rows * c.columns), 5);
      for (const auto activation : {GateActivation::kGeluTanh, GateActivation::kSilu}) {
        const auto product = [&](Machine& machine) {
          auto g = machine.backend
                       ->load_matrix(gate.view, computed(GetParam(), w.compute), machine.budget)
                       .value();
          auto u =
              machine.backend->load_matrix(up.view, computed(GetParam(), w.compute), machine.budget)
                  .value();
          std::vector<float> out(static_cast<std::size_t>(c.rows * c.outputs), NAN);
          machine.executor->gated_matmul(rows_of(x, c.columns), *g, *u, activation,
                                         rows_of(out, c.outputs));
          return out;
        };
        expect_near(product(cpu_), product(ref_), {2e-5F}, case_name(c, w));
      }
    }
  }
}

TEST_P(OpParity, GatedMatmulOfDifferentTypes) {
  const Tensor gate = random_tensor({52, 70}, DType::kBF16, 3, 0.2F);
  const Tensor up = random_tensor({52, 70}, DType::kF32, 4, 0.2F);
  const std::vector<float> x = random_floats(37 * 70, 5);
  const auto product = [&](Machine& machine, const Tensor& first, const Tensor& second) {
    auto g = machine.backend
                 ->load_matrix(first.view, computed(GetParam(), Compute::kFast), machine.budget)
                 .value();
    auto u = machine.backend
                 ->load_matrix(second.view, computed(GetParam(), Compute::kFast), machine.budget)
                 .value();
    std::vector<float> out(37 * 52, NAN);
    machine.executor->gated_matmul(rows_of(x, 70), *g, *u, GateActivation::kGeluTanh,
                                   rows_of(out, 52));
    return out;
  };
  expect_near(product(cpu_, gate, up), product(ref_, gate, up), {2e-5F}, "gate bf16");
  expect_near(product(cpu_, up, gate), product(ref_, up, gate), {2e-5F}, "gate f32");
}

struct ExpertCase {
  std::int64_t rows, experts, top_k, hidden, intermediate;
};
constexpr ExpertCase kExperts[] = {{1, 16, 4, 64, 32},   {5, 16, 2, 44, 20},  {33, 8, 3, 96, 44},
                                   {2, 32, 8, 256, 104}, {40, 4, 4, 48, 100}, {33, 8, 8, 40, 24},
                                   {1, 1, 1, 32, 16}};

TEST_P(OpParity, Experts) {
  for (const ExpertCase& c : kExperts) {
    for (const Weights& w : kWeights) {
      const float scale = 2.0F / std::sqrt(static_cast<float>(c.hidden));
      const Tensor gate = random_tensor({c.experts, c.intermediate, c.hidden}, w.dtype, 6, scale);
      const Tensor up = random_tensor({c.experts, c.intermediate, c.hidden}, w.dtype, 7, scale);
      const Tensor down = random_tensor({c.experts, c.hidden, c.intermediate}, w.dtype, 8, scale);
      const auto x = random_floats(static_cast<std::size_t>(c.rows * c.hidden), 9);
      const auto logits = random_floats(static_cast<std::size_t>(c.rows * c.experts), 10);
      const auto per_expert = random_floats(static_cast<std::size_t>(c.experts), 11);
      const auto run = [&](Machine& machine) {
        auto g =
            machine.backend->load_matrix(gate.view, computed(GetParam(), w.compute), machine.budget)
                .value();
        auto u =
            machine.backend->load_matrix(up.view, computed(GetParam(), w.compute), machine.budget)
                .value();
        auto d =
            machine.backend->load_matrix(down.view, computed(GetParam(), w.compute), machine.budget)
                .value();
        std::vector<std::int32_t> chosen(static_cast<std::size_t>(c.rows * c.top_k));
        std::vector<float> weights(chosen.size());
        const Routing routing = {device(chosen.data()), device(weights.data()), c.top_k};
        machine.executor->route(rows_of(logits, c.experts), device(per_expert.data()), routing);
        std::vector<float> out(static_cast<std::size_t>(c.rows * c.hidden), NAN);
        machine.executor->experts(rows_of(x, c.hidden), {g.get(), u.get(), d.get()}, routing,
                                  GateActivation::kGeluTanh, rows_of(out, c.hidden));
        return out;
      };
      // With bf16 activations a sum next to a rounding boundary may round the other way: one bf16
      // step (2^-8) of a hidden value of order 1, times a weight of order scale.
      const bool fast =
          w.dtype == DType::kBF16 && computed(GetParam(), w.compute) == Compute::kFast;
      expect_near(run(cpu_), run(ref_), {fast ? 0x1p-7F * scale : 2e-5F},
                  "experts " + std::to_string(c.rows));
    }
  }
}

TEST_P(OpParity, RouteBreaksTiesTowardsLowerIds) {
  const std::vector<float> logits = {1, 3, 3, 3, 0, 3};
  const std::vector<float> scale = {1, 2, 3, 4, 5, 6};
  std::vector<std::int32_t> chosen(3);
  std::vector<float> weights(3);
  cpu_.executor->route(rows_of(logits, 6), device(scale.data()),
                       {device(chosen.data()), device(weights.data()), 3});
  EXPECT_EQ(chosen, (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_NEAR(weights[2], 4.0 / 3.0, 1e-6);
}

// Errors below are a few roundings of results of order 1 (rms_norm: a sum in f32 too).
TEST_P(OpParity, RowWiseOperations) {
  for (const std::int64_t width : {2, 6, 16, 20, 44, 64, 100, 256, 2816}) {
    const auto count = static_cast<std::size_t>(3 * width);
    const auto a = random_floats(count, 16, 3.0F);
    const auto b = random_floats(count, 17);
    const auto w = static_cast<std::size_t>(width);
    const auto run = [&](Machine& machine, int op) {
      std::vector<float> out = a;
      Executor& executor = *machine.executor;
      if (op == 0)
        executor.rms_norm(rows_of(a, width), device(b.data()), 1e-6F, rows_of(out, width));
      if (op == 1) executor.rms_norm(rows_of(out, width), nullptr, 1e-6F, rows_of(out, width));
      if (op == 2) executor.add(rows_of(a, width), rows_of(b, width), 0.5F, rows_of(out, width));
      if (op == 3) executor.softcap(rows_of(out, width), 0.7F);
      if (op == 4 || op == 5) {
        executor.gated_multiply(rows_of(a, width), device(b.data()), width,
                                op == 4 ? GateActivation::kGeluTanh : GateActivation::kSilu,
                                rows_of(out, width));
      }
      if (op == 6) {
        std::vector<float> table(static_cast<std::size_t>(3 * width));
        std::vector<float> frequencies = random_floats(static_cast<std::size_t>(width / 2), 18);
        frequencies.back() = 0.0F;
        const RopeTable rope = {device(table.data()), device(table.data() + 3 * (width / 2)),
                                width / 2};
        machine.make_rope_table(1000, 3, frequencies, rope);
        executor.apply_rope(rows_of(out, width), rope);
      }
      if (op == 7) executor.add_vector(rows_of(out, width), device_vector(std::span(b).first(w)));
      return out;
    };
    for (int op = 0; op < 8; ++op) {
      expect_near(run(cpu_, op), run(ref_, op), {2e-6F},
                  "operation " + std::to_string(op) + " width " + std::to_string(width));
    }
  }
}

// A sum of two numbers has one rounding, wherever it is made.
TEST_P(OpParity, AddsTheVectorToEachRow) {
  for (const std::int64_t width : {1, 7, 33, 64, 320, 2817}) {
    for (const std::int64_t rows : {1, 3, 40}) {
      const auto vector = random_floats(static_cast<std::size_t>(width), 21);
      const auto x = random_floats(static_cast<std::size_t>(rows * width), 22, 3.0F);
      std::vector<float> expected = x;
      for (std::size_t i = 0; i < x.size(); ++i) {
        expected[i] += vector[i % static_cast<std::size_t>(width)];
      }
      for (Machine* machine : {&ref_, &cpu_}) {
        std::vector<float> got = x;
        machine->executor->add_vector(rows_of(got, width), device_vector(vector));
        EXPECT_EQ(got, expected) << rows << " rows of " << width;
      }
    }
  }
}

// Products and sums are rounded one by one, in the order that the definition says.
TEST_P(OpParity, ConvolvesTheRowsOfEachSegment) {
  struct Case {
    std::int64_t width, group, taps;
  };
  constexpr std::int64_t kRowsOfSegments[] = {1, 8, 2, 5};
  constexpr std::int64_t kAllRows = 16;
  for (const Case& c : {Case{64, 16, 2}, Case{15, 5, 3}, Case{33, 1, 1}, Case{320, 320, 6}}) {
    const std::int64_t groups = c.width / c.group;
    const std::int64_t own_width = 2 * c.taps * groups;
    const auto x = random_floats(static_cast<std::size_t>(kAllRows * c.width), 23);
    const auto own = random_floats(static_cast<std::size_t>(kAllRows * own_width), 24);
    const auto base = random_floats(static_cast<std::size_t>(c.taps * c.width), 25);
    const auto at = [](const std::vector<float>& values, std::int64_t i) {
      return values[static_cast<std::size_t>(i)];
    };
    std::vector<float> expected;
    for (std::int64_t first = 0; const std::int64_t rows : kRowsOfSegments) {
      for (std::int64_t t = first; t < first + rows; ++t) {
        for (std::int64_t d = 0; d < c.width; ++d) {
          float sum = 0.0F;
          for (std::int64_t o = 0; o < c.taps && t - o >= first; ++o) {
            const std::int64_t column = (c.taps + o) * groups + d / c.group;
            sum += (at(base, o * c.width + d) + at(own, t * own_width + column)) *
                   at(x, (t - o) * c.width + d);
          }
          expected.push_back(sum);
        }
      }
      first += rows;
    }
    for (Machine* machine : {&ref_, &cpu_}) {
      BatchBuilder builder(kAllRows, 4);
      for (const std::int64_t rows : kRowsOfSegments) builder.add_rows(rows, 0, {});
      std::vector<float> out(expected.size(), NAN);
      machine->executor->begin(builder.batch());
      machine->executor->convolve(rows_of(x, c.width),
                                  {.base = device_vector(base),
                                   .own = rows_of(own, own_width),
                                   .column = c.taps * groups,
                                   .taps = c.taps,
                                   .group = c.group},
                                  rows_of(out, c.width));
      EXPECT_EQ(out, expected) << c.width << " by " << c.group << ", " << c.taps << " taps";
    }
  }
}

TEST_P(OpParity, CapsLogitsOfEverySize) {
  std::vector<float> x;
  for (float magnitude = 1e-6F; magnitude < 1e4F; magnitude *= 1.07F) {
    x.push_back(magnitude);
    x.push_back(-magnitude);
  }
  std::vector<float> expected = x;
  const auto width = static_cast<std::int64_t>(x.size());
  ref_.executor->softcap(rows_of(expected, width), 30.0F);
  std::vector<float> got = x;
  cpu_.executor->softcap(rows_of(got, width), 30.0F);
  std::vector<float> tolerance = absolute(expected);
  for (float& value : tolerance) value *= 4 * 0x1p-23F;  // tanh within 3 ulp, one product
  expect_near(got, expected, tolerance, "softcap");
}

TEST_P(OpParity, EmbedReadsPackedAndMappedTables) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const Tensor table = random_tensor({300, 45}, dtype, 19);
    const std::vector<TokenId> ids = {0, 299, 17, 17, 255};
    const auto run = [&](Machine& machine, bool mapped) {
      auto matrix =
          mapped ? machine.backend->map_table(table.view).value()
                 : machine.backend->load_matrix(table.view, Compute::kFast, machine.budget).value();
      std::vector<float> out(ids.size() * 45);
      machine.embed(*matrix, ids, 7.5F, rows_of(out, 45));
      return out;
    };
    EXPECT_EQ(run(cpu_, false), run(ref_, true));
    EXPECT_EQ(run(cpu_, true), run(ref_, true));
  }
}

TEST_P(OpParity, CopyColumnsLeavesTheOthersAlone) {
  const auto x = random_floats(6, 20);
  std::vector<float> out(2 * 8, 9.0F);
  cpu_.executor->copy_columns(rows_of(x, 3), device(out.data()), 8, 4);
  for (std::size_t t = 0; t < 2; ++t) {
    for (std::size_t d = 0; d < 8; ++d) {
      const bool copied = d >= 4 && d < 7;
      EXPECT_EQ(out[t * 8 + d], copied ? x[t * 3 + d - 4] : 9.0F);
    }
  }
}

}  // namespace
}  // namespace kakeya
