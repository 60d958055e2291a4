// A pass could be captured as a graph and replayed: a backend that computes nothing writes down the
// operations with their arguments, which are the same in every pass of a shape.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/forwarding_executor.h"
#include "decode/pass.h"
#include "model/random_source.h"
#include "model/test_model.h"

namespace kakeya::test {
namespace {

// Operations of all executors, in their order, with every argument: addresses, sizes, numbers.
class Record {
 public:
  template <typename... Arguments>
  void add(std::string_view operation, const Arguments&... arguments) {
    std::string line(operation);
    ((line += ' ' + text(arguments)), ...);
    lines_.push_back(line);
  }
  std::vector<std::string> take() { return std::exchange(lines_, {}); }

 private:
  template <typename T>
  static std::string text(DevicePointer<T> pointer) {
    return fmt::format("{}", static_cast<const void*>(pointer.address()));
  }
  static std::string text(const ConstRows& x) {
    return fmt::format("{} [{}, {}]", text(x.data), x.count, x.width);
  }
  static std::string text(const Rows& x) { return text(ConstRows(x)); }
  static std::string text(const ConstVector& x) {
    return fmt::format("{} [{}]", text(x.data), x.size);
  }
  static std::string text(const RopeTable& table) {
    return fmt::format("{} {} {}", text(table.cos), text(table.sin), table.half);
  }
  static std::string text(const Routing& routing) {
    return fmt::format("{} {} {}", text(routing.experts), text(routing.weights), routing.top_k);
  }
  static std::string text(const Matrix& matrix) {
    return fmt::format("{}", static_cast<const void*>(&matrix));
  }
  static std::string text(const ExpertWeights& weights) {
    return text(*weights.gate) + ' ' + text(*weights.up) + ' ' + text(*weights.down);
  }
  static std::string text(const RowConvolution& c) {
    return fmt::format("{} {} {} {} {}", text(c.base), text(c.own), c.column, c.taps, c.group);
  }
  static std::string text(TokenId id) { return fmt::format("{}", id); }
  static std::string text(std::span<TokenLogit> out) { return fmt::format("{}", out.size()); }
  static std::string text(const AttentionSettings& s) {
    return fmt::format("{} {} {} {} {} {} {}", s.scale, static_cast<int>(s.compute),
                       s.bidirectional, text(s.derivation.k_norm),
                       text(s.derivation.inverse_frequencies), s.normalise_values, s.rms_norm_eps);
  }
  static std::string text(GateActivation activation) {
    return fmt::format("{}", static_cast<int>(activation));
  }
  static std::string text(std::int64_t number) { return fmt::format("{}", number); }
  template <typename Choice>
  static std::string text(std::span<Choice> choices) {
    return fmt::format("{}", choices.size());
  }
  static std::string text(const HostCopies&) { return "copies"; }
  static std::string text(float number) { return fmt::format("{}", number); }

  std::vector<std::string> lines_;
};

// Runs nothing, so there is no inner executor.
class RecordingExecutor final : public ForwardingExecutor<RecordingExecutor> {
 public:
  explicit RecordingExecutor(Record& record) : ForwardingExecutor(nullptr), record_(record) {}

  template <typename Operation, typename... Arguments>
  void around(std::string_view name, Operation&&, Arguments&... arguments) {
    record_.add(name, arguments...);
  }
  void begin(const Batch& batch) override {
    Executor::begin(batch);
    record_.add("begin", batch.rows(), std::ssize(batch.segments));
  }
  Status end(std::span<const ConstRows>) override {
    record_.add("end");
    return {};
  }

 private:
  Record& record_;
};

// A weight of which nothing but its shape is known.
class ShapeOnly final : public Matrix {
 public:
  explicit ShapeOnly(const Shape& shape)
      : Matrix(shape.size() == 3 ? shape.front() : 1, shape[shape.size() - 2], shape.back()) {}
  std::uint64_t bytes() const override { return 0; }
};

class RecordingBackend final : public Backend {
 public:
  explicit RecordingBackend(Record& record) : record_(record) {}

  std::string_view name() const override { return "recording"; }
  int num_threads() const override { return 1; }
  Result<std::unique_ptr<Matrix>> load_matrix(const TensorView& weight,
                                              Compute,
                                              MemoryBudget&) override {
    return std::make_unique<ShapeOnly>(weight.shape);
  }
  std::uint64_t matrix_bytes(const TensorView&, Compute) const override { return 0; }
  Result<std::unique_ptr<Matrix>> map_table(const TensorView& weight) override {
    return std::make_unique<ShapeOnly>(weight.shape);
  }
  Result<std::unique_ptr<Executor>> create_executor(const ExecutorPlan&, MemoryBudget&) override {
    return std::make_unique<RecordingExecutor>(record_);
  }
  std::uint64_t executor_bytes(const ExecutorPlan&) const override { return 0; }

 private:
  Record& record_;
};

class Replay : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Networks,
                         Replay,
                         testing::Values("gemma4-moe", "gemma4-e", "qwen3-untied"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Three sequences: one that keeps vectors alone or pairs, one that stores integers, one that drops
// rows.
SessionOptions session_of(std::size_t index) {
  SessionOptions options{.context = 256, .max_rows = 16};
  if (index == 1) options.kv_full = options.kv_sliding = KvType::kInt8;
  if (index == 2) {
    options.window = 24;
    options.sink = 2;
    options.evicted_full = Evicted::kDrop;
  }
  return options;
}

TEST_P(Replay, APassOfAShapeIssuesTheSameOperationsWithTheSameArguments) {
  Record record;
  const auto config = load_model_config(network_dir(GetParam()));
  ASSERT_OK(config);
  ThreadPool pool({.num_threads = 1, .pin = false});
  RandomSource source(expected_tensors(*config), 1, pool);
  const auto model =
      TestModel::load(*config, source, std::make_unique<RecordingBackend>(record), Compute::kFast);
  ASSERT_NE(model, nullptr);
  WorkspacePlan plan = plan_target_passes(*config, 48, 48);
  plan.executor.max_sequences = 3;
  ASSERT_OK(model->workspace().reserve(plan));
  std::vector<std::unique_ptr<Timeline>> timelines;
  for (std::size_t i = 0; i < 3; ++i) {
    timelines.push_back(model->timeline(session_of(i), 16));
    ASSERT_OK(timelines.back()->push(std::vector<TokenId>(200, 3)));
  }
  // The operations of a pass of so many rows of each sequence, of which the last `logit_rows` have
  // logits; all but the last row are kept.
  const auto run = [&](const std::vector<std::size_t>& rows, std::int64_t logit_rows) {
    record.take();
    kakeya::Pass pass(model->workspace());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      EXPECT_TRUE(pass.add(*timelines[i], timelines[i]->pending().first(rows[i]), {}, logit_rows));
    }
    EXPECT_TRUE(pass.run().has_value());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      timelines[i]->commit(static_cast<std::int64_t>(rows[i]) - 1);
    }
    return record.take();
  };
  // A shape that goes round the rings, and begins at odd and even positions.
  const std::vector<std::size_t> block = {8, 5, 14};
  const std::vector<std::string> first = run(block, 3);
  EXPECT_GT(first.size(), 10U);
  for (int pass = 0; pass < 10; ++pass) ASSERT_EQ(run(block, 3), first) << pass;
  // Another shape issues others; after it the first one's are what they were.
  EXPECT_NE(run({8, 5, 13}, 3), first);
  EXPECT_NE(run(block, 2), first);
  EXPECT_EQ(run(block, 3), first);
}

}  // namespace
}  // namespace kakeya::test
