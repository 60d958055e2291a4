// Promise: the bits of an output row depend on that row alone. Each operation over many rows is
// compared, bit for bit, with one row at a time on one thread.
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "backend/backend_fixture.h"
#include "thorough.h"

namespace kakeya {
namespace {

class RowInvariance : public testing::TestWithParam<std::string> {
 protected:
  Machine alone_{Configuration{GetParam(), 1}};
  Machine one_thread_{Configuration{GetParam(), 1}};
  Machine two_threads_{Configuration{GetParam(), 2}};
};

std::vector<std::string> supported_sets() {
  std::vector<std::string> names;
  for (const Configuration& configuration : fast_configurations({1}))
    names.push_back(configuration.instruction_set);
  return names;
}

INSTANTIATE_TEST_SUITE_P(AllSets,
                         RowInvariance,
                         testing::ValuesIn(supported_sets()),
                         [](const auto& test) { return test.param; });

// EXPECT_EQ on floats takes -0 for 0; this does not.
testing::AssertionResult same_bits(const float* a, const float* b, std::int64_t count) {
  if (std::memcmp(a, b, static_cast<std::size_t>(count) * sizeof(float)) == 0) {
    return testing::AssertionSuccess();
  }
  for (std::int64_t i = 0; i < count; ++i) {
    if (std::memcmp(a + i, b + i, sizeof(float)) != 0) {
      return testing::AssertionFailure() << "element " << i << ": " << a[i] << " and " << b[i];
    }
  }
  return testing::AssertionFailure();
}

struct Case {
  DType dtype;
  Compute compute;
  std::int64_t columns;
};
// 352 columns are a multiple of 32, as tensor cores want them.
constexpr Case kCases[] = {{DType::kBF16, Compute::kFast, 352},
                           {DType::kBF16, Compute::kFast, 332},
                           {DType::kBF16, Compute::kF32, 332},
                           {DType::kF32, Compute::kF32, 332}};

struct Projections {
  Projections(Machine& machine, const Tensor& gate_tensor, const Tensor& up_tensor, Compute compute)
      : gate(machine.backend->load_matrix(gate_tensor.view, compute, machine.budget).value()),
        up(machine.backend->load_matrix(up_tensor.view, compute, machine.budget).value()) {}
  std::unique_ptr<Matrix> gate;
  std::unique_ptr<Matrix> up;
};

TEST_P(RowInvariance, Products) {
  constexpr std::int64_t kOutputs = 200;
  constexpr std::int64_t kRows = 80;  // enough for tiles of them, though outputs are few
  for (const Case& c : kCases) {
    const auto x = random_floats(static_cast<std::size_t>(kRows * c.columns), 1);
    const Tensor gate = random_tensor({kOutputs, c.columns}, c.dtype, 2, 0.1F);
    const Tensor up = random_tensor({kOutputs, c.columns}, c.dtype, 3, 0.1F);
    std::map<Machine*, Projections> loaded;
    for (Machine* machine : {&alone_, &one_thread_, &two_threads_}) {
      loaded.try_emplace(machine, *machine, gate, up, c.compute);
    }
    const auto run = [&](Machine& machine, std::int64_t first, std::int64_t rows, bool gated) {
      std::vector<float> out(static_cast<std::size_t>(rows * kOutputs));
      const ConstRows in = {device(x.data() + first * c.columns), rows, c.columns};
      const Projections& weights = loaded.at(&machine);
      if (gated) {
        machine.executor->gated_matmul(in, *weights.gate, *weights.up, GateActivation::kSilu,
                                       rows_of(out, kOutputs));
      } else {
        machine.executor->matmul(in, *weights.gate, rows_of(out, kOutputs));
      }
      return out;
    };
    for (const bool gated : {false, true}) {
      std::vector<float> expected;
      for (std::int64_t t = 0; t < kRows; ++t) {
        const auto row = run(alone_, t, 1, gated);
        expected.insert(expected.end(), row.begin(), row.end());
      }
      for (std::int64_t rows = 1; rows <= 33; ++rows) {
        for (Machine* machine : {&one_thread_, &two_threads_}) {
          // In the short form one of the emulated machines.
          const auto number = static_cast<std::size_t>(rows) + (machine == &one_thread_ ? 1 : 0);
          if (is_emulated(GetParam()) && !test::is_run(number, 2)) continue;
          const std::int64_t first = rows % 7;
          const auto got = run(*machine, first, rows, gated);
          ASSERT_TRUE(same_bits(got.data(), expected.data() + first * kOutputs, rows * kOutputs))
              << rows << " rows";
        }
      }
      const auto all = run(two_threads_, 0, kRows, gated);
      ASSERT_TRUE(same_bits(all.data(), expected.data(), kRows * kOutputs));
    }
  }
}

struct Moe {
  std::int64_t experts, top_k;
  bool all_to_one, ties;
};
constexpr Moe kMoes[] = {
    {16, 4, false, false}, {16, 1, true, false}, {8, 8, false, false}, {16, 3, false, true}};

TEST_P(RowInvariance, Experts) {
  constexpr std::int64_t kHidden = 300;
  constexpr std::int64_t kIntermediate = 116;
  constexpr std::int64_t kRows = 40;
  const auto x = random_floats(kRows * kHidden, 4);
  // Emulated kernels are slow: each way to route meets one kind of weights.
  const bool is_slow = GetParam() == kCudaEmulated;
  const std::vector<std::int64_t> blocks = is_slow
                                               ? std::vector<std::int64_t>{3, 17}
                                               : std::vector<std::int64_t>{2, 3, 8, 16, 17, 31, 33};
  std::size_t combination = 0;
  for (const Moe& moe : kMoes) {
    auto logits = random_floats(static_cast<std::size_t>(kRows * moe.experts), 5);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (moe.ties) logits[i] = std::round(logits[i]);
      if (moe.all_to_one) logits[i] = i % static_cast<std::size_t>(moe.experts) == 5 ? 9.0F : 0.0F;
    }
    const auto scales = random_floats(static_cast<std::size_t>(moe.experts), 6);
    for (const Case& c : kCases) {
      if (is_slow && combination++ % 4 != 0) continue;
      const Tensor gate = random_tensor({moe.experts, kIntermediate, kHidden}, c.dtype, 7, 0.1F);
      const Tensor up = random_tensor({moe.experts, kIntermediate, kHidden}, c.dtype, 8, 0.1F);
      const Tensor down = random_tensor({moe.experts, kHidden, kIntermediate}, c.dtype, 9, 0.1F);
      std::map<Machine*, std::array<std::unique_ptr<Matrix>, 3>> loaded;
      for (Machine* machine : {&alone_, &one_thread_, &two_threads_}) {
        std::size_t i = 0;
        for (const Tensor* tensor : {&gate, &up, &down}) {
          loaded[machine][i++] =
              machine->backend->load_matrix(tensor->view, c.compute, machine->budget).value();
        }
      }
      const auto run = [&](Machine& machine, std::int64_t first, std::int64_t rows) {
        const auto& [g, u, d] = loaded.at(&machine);
        std::vector<std::int32_t> chosen(static_cast<std::size_t>(rows * moe.top_k));
        std::vector<float> weights(chosen.size());
        const Routing routing = {device(chosen.data()), device(weights.data()), moe.top_k};
        machine.executor->route({device(logits.data() + first * moe.experts), rows, moe.experts},
                                device(scales.data()), routing);
        std::vector<float> out(static_cast<std::size_t>(rows * kHidden));
        machine.executor->experts({device(x.data() + first * kHidden), rows, kHidden},
                                  {g.get(), u.get(), d.get()}, routing, GateActivation::kGeluTanh,
                                  rows_of(out, kHidden));
        return out;
      };
      std::vector<float> expected;
      for (std::int64_t t = 0; t < kRows; ++t) {
        const auto row = run(alone_, t, 1);
        expected.insert(expected.end(), row.begin(), row.end());
      }
      for (const std::int64_t rows : blocks) {
        for (Machine* machine : {&one_thread_, &two_threads_}) {
          const std::int64_t first = rows % 5;
          const auto got = run(*machine, first, rows);
          ASSERT_TRUE(same_bits(got.data(), expected.data() + first * kHidden, rows * kHidden))
              << rows << " rows, top " << moe.top_k;
        }
      }
    }
  }
}

struct Ring {
  std::int64_t heads, kv_heads, head_dim, window, block;
  KvFormat format = KvFormat::kF32;
  bool derived = false;  // one stored vector
  std::int64_t sink = 0;
  std::int64_t kept = 0;  // 0: nothing is dropped
  Compute compute = Compute::kF32;

  std::int64_t capacity(std::int64_t length) const {
    const std::int64_t reach = kept == 0 ? window : kept;
    return reach == 0 ? length : sink + reach + block - 1;
  }
};
constexpr Ring kRings[] = {{4, 2, 32, 100, 33},
                           {4, 2, 32, 100, 33, KvFormat::kBf16},
                           {8, 1, 20, 64, 16},
                           {8, 1, 20, 64, 16, KvFormat::kBf16},
                           {2, 2, 256, 7, 33},
                           {6, 2, 64, 0, 33, KvFormat::kBf16},
                           {8, 1, 64, 0, 17, KvFormat::kF32, true},
                           {4, 2, 64, 0, 33, KvFormat::kBf16, true},
                           {2, 2, 32, 0, 9, KvFormat::kInt8, true},
                           {4, 2, 32, 100, 33, KvFormat::kInt8},
                           {4, 2, 64, 0, 33, KvFormat::kE8},
                           {4, 1, 32, 70, 16, KvFormat::kE8},
                           {8, 2, 128, 0, 16, KvFormat::kE8, true},
                           {4, 2, 32, 0, 33, KvFormat::kF32, false, 4, 64},
                           {4, 2, 64, 0, 33, KvFormat::kBf16, true, 5, 70},
                           {4, 2, 32, 128, 16, KvFormat::kInt8, false, 4, 64},
                           {4, 1, 64, 0, 16, KvFormat::kE8, true, 3, 40},
                           {4, 2, 128, 100, 33, KvFormat::kBf16, false, 0, 0, Compute::kFast},
                           {6, 2, 192, 0, 33, KvFormat::kBf16, false, 0, 0, Compute::kFast},
                           {2, 2, 256, 7, 70, KvFormat::kBf16, false, 0, 0, Compute::kFast},
                           {8, 1, 512, 0, 17, KvFormat::kBf16, true, 0, 0, Compute::kFast},
                           {16, 2, 256, 100, 33, KvFormat::kBf16, false, 0, 0, Compute::kFast},
                           {11, 1, 320, 0, 70, KvFormat::kBf16, true, 5, 70, Compute::kFast},
                           {4, 2, 128, 0, 33, KvFormat::kBf16, true, 5, 70, Compute::kFast},
                           // Keys are made from another first chunk in company than alone.
                           {4, 2, 128, 0, 33, KvFormat::kBf16, true, 0, 70, Compute::kFast}};

// Memory of one layer's rows, in blocks that lie in reverse order.
struct BlockMemory {
  std::vector<std::byte> bytes;
  std::vector<DevicePointer<std::byte>> keys;
  std::vector<DevicePointer<std::byte>> values;

  KvRows rows(const Ring& ring, std::int64_t capacity, std::int64_t block_slots) {
    KvRows kv = {.block_slots = block_slots,
                 .format = ring.format,
                 .capacity = capacity,
                 .num_kv_heads = ring.kv_heads,
                 .head_dim = ring.head_dim,
                 .sink = ring.sink};
    const std::int64_t blocks = (capacity + block_slots - 1) / block_slots;
    const std::int64_t half = block_slots * kv.slot_bytes();
    bytes.assign(static_cast<std::size_t>(2 * blocks * half), std::byte{0xff});
    for (std::int64_t b = blocks - 1; b >= 0; --b) {
      keys.push_back(device(bytes.data() + 2 * b * half));
      values.push_back(keys.back() + half);
    }
    kv.keys = ring.derived ? nullptr : keys.data();
    kv.values = values.data();
    return kv;
  }
};

// Appends block after block through a ring as a session does, and each time compares with single
// rows over a cache that never wrapped and lies in one piece.
TEST_P(RowInvariance, AttentionOverRingWraps) {
  // On host memory mlx copies all rows for each operation, kernels without instruction sets and
  // emulated ones are slow: fewer rows, which still wrap rings. In the short form emulated ones
  // meet a ring of each format, those of mlx of each format that keys are made of, too.
  const bool is_slow = is_emulated(GetParam());
  const bool is_slower = is_slow || is_mlx(GetParam()) || GetParam() == "portable";
  const std::int64_t length = !is_slower ? 460 : is_slow ? test::by_form(140, 180) : 180;
  std::set<std::tuple<KvFormat, Compute, bool>> met;
  for (const Ring& ring : kRings) {
    const bool makes_keys = GetParam() == "mlx_kernels" && ring.derived;
    const bool is_first = met.emplace(ring.format, ring.compute, makes_keys).second;
    if (is_slow && !is_first && !test::thorough()) continue;
    const std::int64_t kv_width = ring.kv_heads * ring.head_dim;
    const std::int64_t width = ring.heads * ring.head_dim;
    const auto keys = random_floats(static_cast<std::size_t>(length * kv_width), 10, 2.0F);
    const auto values = random_floats(static_cast<std::size_t>(length * kv_width), 11);
    const auto queries = random_floats(static_cast<std::size_t>(length * width), 12);
    const auto k_norm = random_floats(static_cast<std::size_t>(ring.head_dim), 16, 2.0F);
    const std::vector<float> frequencies = {1.0F, 0.1F, 1e-3F};
    const auto input_of = [&](const KvRows& kv, std::int64_t first, std::int64_t rows) {
      AttentionInput input;
      input.queries = {device(queries.data() + first * width), rows, width};
      input.first_position = first;
      input.layer.rows = kv;
      input.layer.window = ring.window;
      input.layer.kept = ring.kept;
      input.settings.compute = ring.compute;
      input.settings.scale = 0.5F;
      input.settings.derivation = {.k_norm = device(k_norm.data()),
                                   .inverse_frequencies = device_vector(frequencies)};
      return input;
    };
    const auto store = [&](const KvRows& kv, std::int64_t first, std::int64_t rows) {
      alone_.store({device(keys.data() + first * kv_width), rows, kv_width},
                   {device(values.data() + first * kv_width), rows, kv_width}, first, kv);
    };
    BlockMemory full_memory;
    const KvRows full = full_memory.rows(ring, length, length);
    store(full, 0, length);
    std::vector<float> expected(static_cast<std::size_t>(length * width));
    const std::int64_t apart = is_slow ? test::by_form(3, 1) : 1;  // of rows that are compared
    for (std::int64_t t = 0; t < length; t += apart) {
      alone_.attend(input_of(full, t, 1), {device(expected.data() + t * width), 1, width});
    }
    BlockMemory ring_memory;
    const KvRows kv = ring_memory.rows(ring, ring.capacity(length), 37);
    std::int64_t rows = 1;
    for (std::int64_t first = 0; first < length; first += rows) {
      rows = std::min((first * 7 + 5) % ring.block + 1, length - first);
      store(kv, first, rows);
      Machine& machine = first % 2 == 0 ? one_thread_ : two_threads_;
      std::vector<float> got(static_cast<std::size_t>(rows * width), NAN);
      machine.attend(input_of(kv, first, rows), rows_of(got, width));
      for (std::int64_t t = (first + apart - 1) / apart * apart; t < first + rows; t += apart) {
        ASSERT_TRUE(same_bits(got.data() + (t - first) * width, expected.data() + t * width, width))
            << "position " << t << " among " << first << " + " << rows;
      }
      if (is_slow && !test::is_run(static_cast<std::size_t>(first), 2)) continue;
      // The rows of a bidirectional block, and each of them beside other ones.
      AttentionInput block = input_of(kv, first, rows);
      block.settings.bidirectional = true;
      machine.attend(block, rows_of(got, width));
      AttentionInput others = input_of(full, first, rows);
      others.settings.bidirectional = true;
      std::vector<float> beside(static_cast<std::size_t>(rows * width));
      const std::int64_t step = is_slow ? 33 : test::by_form(3, 1);
      for (std::int64_t t = first % step; t < rows; t += step) {
        auto mixed = random_floats(beside.size(), static_cast<unsigned>(first + t), 3.0F);
        std::copy_n(queries.begin() + (first + t) * width, width, mixed.begin() + t * width);
        others.queries.data = device(mixed.data());
        alone_.attend(others, rows_of(beside, width));
        ASSERT_TRUE(same_bits(got.data() + t * width, beside.data() + t * width, width))
            << "row " << t << " of a block at " << first;
      }
    }
  }
}

// Where sums are made of several parts: rows of which some see 32 chunks of 64 keys and some more.
TEST_P(RowInvariance, AttentionOverManyChunks) {
  constexpr std::int64_t kFirst = 2040;
  constexpr std::int64_t kCount = 18;
  constexpr std::int64_t kLength = kFirst + kCount;
  constexpr std::int64_t kWidth = 32;  // of the only key and value head, and of each of two queries
  const auto keys = random_floats(kLength * kWidth, 20, 2.0F);
  const auto values = random_floats(kLength * kWidth, 21);
  const auto queries = random_floats(kCount * 2 * kWidth, 22);
  BlockMemory memory;
  const KvRows kv = memory.rows({2, 1, kWidth, 0, 0}, kLength, 256);
  alone_.store({device(keys.data()), kLength, kWidth}, {device(values.data()), kLength, kWidth}, 0,
               kv);
  const auto attend = [&](Machine& machine, std::int64_t row, std::int64_t rows) {
    AttentionInput input;
    input.queries = {device(queries.data() + row * 2 * kWidth), rows, 2 * kWidth};
    input.first_position = kFirst + row;
    input.layer.rows = kv;
    input.settings.scale = 0.5F;
    std::vector<float> out(static_cast<std::size_t>(rows * 2 * kWidth), NAN);
    machine.attend(input, rows_of(out, 2 * kWidth));
    return out;
  };
  // With room for the parts of a few rows at a time.
  ExecutorPlan plan = roomy_plan();
  plan.max_query_width = 2 * kWidth;
  Machine narrow({GetParam(), 2}, plan);
  const std::vector<float> together = attend(narrow, 0, kCount);
  for (const std::int64_t row : {std::int64_t{0}, std::int64_t{7}, std::int64_t{8}, kCount - 1}) {
    const std::vector<float> alone = attend(alone_, row, 1);
    EXPECT_TRUE(same_bits(alone.data(), together.data() + row * 2 * kWidth, 2 * kWidth)) << row;
  }
}

TEST_P(RowInvariance, RowWiseOperations) {
  for (const std::int64_t width : {20, 64, 300, 2816}) {
    constexpr std::int64_t kRows = 33;
    const auto x = random_floats(static_cast<std::size_t>(kRows * width), 13, 3.0F);
    const auto weight = random_floats(static_cast<std::size_t>(width), 14);
    const auto frequencies = random_floats(static_cast<std::size_t>(width / 2), 15);
    const auto run = [&](Machine& machine, std::int64_t first, std::int64_t rows, int op) {
      Executor& executor = *machine.executor;
      std::vector<float> out(x.begin() + first * width, x.begin() + (first + rows) * width);
      const Rows all = rows_of(out, width);
      if (op == 0) executor.rms_norm(all, device(weight.data()), 1e-6F, all);
      if (op == 1) executor.softcap(all, 1.5F);
      if (op == 2)
        executor.gated_multiply(all, device(out.data()), width, GateActivation::kSilu, all);
      if (op == 4) executor.add_vector(all, device_vector(weight));
      if (op == 3) {
        std::vector<float> cos(static_cast<std::size_t>(rows * (width / 2)));
        std::vector<float> sin(cos.size());
        const RopeTable table = {device(cos.data()), device(sin.data()), width / 2};
        machine.make_rope_table(100 + first, rows, frequencies, table);
        executor.apply_rope(all, table);
      }
      return out;
    };
    for (int op = 0; op < 5; ++op) {
      const auto together = run(two_threads_, 0, kRows, op);
      for (std::int64_t t = 0; t < kRows; ++t) {
        const auto alone = run(alone_, t, 1, op);
        ASSERT_TRUE(same_bits(alone.data(), together.data() + t * width, width))
            << "operation " << op << " row " << t;
      }
    }
  }
}

}  // namespace
}  // namespace kakeya
