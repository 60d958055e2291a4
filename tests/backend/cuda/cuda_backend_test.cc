// The backend for cards on the driver of cards, over a stand-in for NVIDIA's library: weights,
// whole networks and the demo model, against the emulator.
#include "backend/cuda/cuda_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "backend/choose.h"
#include "backend/cuda/cuda_driver_fixture.h"
#include "backend/cuda/cuda_matrix.h"
#include "backend/emulated/emulated_driver.h"
#include "model/test_model.h"
#include "runtime/engine_impl.h"

namespace kakeya::cuda {
namespace {

using test::ForwardRecord;
using test::TestModel;
using testing::AllOf;
using testing::Each;
using testing::Ge;
using testing::SizeIs;
using testing::StartsWith;

TEST(CudaBackend, NamesWhatIsNoCard) {
  for (const char* name : {"cuda/", "cuda/x", "cuda/-1", "cuda/1x", "cuda/99999999999"}) {
    const auto backend = create_backend({.name = name, .threads = {}});
    ASSERT_FALSE(backend.has_value());
    EXPECT_EQ(backend.error().message(),
              std::string("EngineOptions::backend must be cuda or cuda/NUMBER of a card but is '") +
                  name + "'");
  }
}

// More than staging() takes, no two pieces alike: while one is copied the next is packed beside it.
TEST_F(CudaDriver, LoadsWeightsPieceByPiece) {
  constexpr std::int64_t kCols = 2048;
  constexpr std::int64_t kPiece = Driver::kStagingBytes / 2 / (kCols * 2);  // rows
  constexpr std::int64_t kLoadedRows = 2 * kPiece + 77;
  std::vector<std::uint16_t> values(static_cast<std::size_t>(kLoadedRows * kCols));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<std::uint16_t>((i * 40503 >> 3) ^ (i >> 20)) & 0x3fffU;  // finite
  }
  const TensorView view = {.data = reinterpret_cast<const std::byte*>(values.data()),
                           .shape = {kLoadedRows, kCols},
                           .dtype = DType::kBF16};
  for (const auto& driver : {create(), create_emulated_driver({}).value()}) {
    MemoryBudget budget;
    {
      const auto matrix = load_matrix(view, Compute::kFast, *driver, budget, 2);
      ASSERT_OK(matrix);
      std::vector<std::uint16_t> loaded(values.size());
      const auto& weight = static_cast<const CudaMatrix&>(**matrix).weight();
      download(driver->memory(),
               DevicePointer<const std::uint16_t>(static_cast<const std::uint16_t*>(weight.data)),
               std::span(loaded));
      EXPECT_TRUE(loaded == values) << driver->name();
    }
    const std::uint16_t last = std::exchange(values.back(), 0x7f80U);  // infinity
    const auto refused = load_matrix(view, Compute::kFast, *driver, budget, 2);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), StatusCode::kDataLoss);
    values.back() = last;
  }
}

struct LoadedNetwork {
  std::unique_ptr<TensorSource> source;
  std::unique_ptr<TestModel> model;
};

LoadedNetwork load_network(const char* name, std::unique_ptr<Backend> backend, Compute compute) {
  const std::string dir = test::network_dir(name);
  const ModelConfig config = load_model_config(dir).value();
  LoadedNetwork loaded;
  loaded.source = CheckpointSource::open(dir, config).value();
  loaded.model = TestModel::load(config, *loaded.source, std::move(backend), compute);
  return loaded;
}

// Through all kernels: experts, rings, one stored vector, rows of several chunks. The emulator runs
// each launch by itself, so fused launches must give the same bits.
void expect_the_bits_of_the_emulator(const std::function<std::unique_ptr<Backend>()>& create_card) {
  for (const Compute compute : {Compute::kF32, Compute::kFast}) {
    const LoadedNetwork emulated = load_network(
        "gemma4-moe", create_emulated_backend({.runs_one_by_one = true}).value(), compute);
    const LoadedNetwork card = load_network("gemma4-moe", create_card(), compute);
    std::vector<TokenId> ids = test::random_ids(40, 5);
    for (TokenId& id : ids) id %= static_cast<TokenId>(card.model->config().vocab_size);
    const std::vector<std::int64_t> taps = {kTapEmbedding, 1, 2};
    const auto record_of = [&](TestModel& model) {
      const auto timeline = model.timeline({.context = 64, .max_rows = 16}, 16);
      return test::run(*timeline, ids, taps, 16);
    };
    const ForwardRecord expected = record_of(*emulated.model);
    const ForwardRecord got = record_of(*card.model);
    EXPECT_EQ(got.logits, expected.logits);
    EXPECT_EQ(got.taps, expected.taps);
  }
}

TEST_F(CudaDriver, GivesNetworksTheBitsOfTheEmulator) {
  expect_the_bits_of_the_emulator([] { return create_backend_on(create()); });
}

// For tools/gpu/session: on the machine's own card.
TEST(CudaCard, GivesNetworksTheBitsOfTheEmulator) {
  if (test::card_backends().empty()) GTEST_SKIP() << "KAKEYA_TEST_CARD is not set";
  expect_the_bits_of_the_emulator([] { return create_cuda_backend().value(); });
}

// Sampled, from what the device lists of each row.
void expect_the_choice_of_the_host(Backend& backend, std::int64_t vocab_size) {
  constexpr std::int64_t kRows = 3;
  MemoryBudget budget;
  ExecutorPlan plan;
  plan.max_rows = kRows;
  plan.max_query_width = 4096;
  const auto executor = backend.create_executor(plan, budget).value();
  std::vector<float> values(static_cast<std::size_t>(kRows * vocab_size));
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0.0F, 3.0F);
  std::ranges::generate(values, [&] { return normal(random); });
  const Buffer logits =
      budget.allocate(MemoryClass::kLogits, values.size() * sizeof(float), backend.memory())
          .value();
  upload(backend.memory(), std::span<const float>(values), logits.device<float>());
  const auto draft = [&](float* data, const auto& choose) {
    Sampler sampler = Sampler::create(vocab_size, budget).value();
    sampler.set_options({.temperature = 1.0F, .top_k = 64, .top_p = 0.95F, .seed = 4}, {});
    std::vector<TokenId> out(kRows, -1);
    BlockChoice choice{.logits = {DevicePointer<float>(data), kRows, vocab_size},
                       .position = 5,
                       .sampler = &sampler,
                       .never = 7,
                       .out = out};
    choose(choice);
    return out;
  };
  class NoCopies final : public HostCopies {
   public:
    HostRows download(Rows /*rows*/) override {
      ADD_FAILURE() << "a whole row came to the host";
      return {};
    }
  } copies;
  const auto of_device = draft(logits.device<float>().address(), [&](BlockChoice& choice) {
    executor->choose_drafts({&choice, 1}, copies);
  });
  const auto of_host = draft(values.data(), [&](BlockChoice& choice) {
    choose_on_host(choice, {values.data(), kRows, vocab_size});
  });
  EXPECT_EQ(of_device, of_host);
}

TEST_F(CudaDriver, ChoosesAsTheHostDoes) {
  expect_the_choice_of_the_host(*create_backend_on(create()), 20000);
}

TEST(CudaCard, ChoosesAsTheHostDoes) {
  if (test::card_backends().empty()) GTEST_SKIP() << "KAKEYA_TEST_CARD is not set";
  expect_the_choice_of_the_host(*create_cuda_backend().value(), 262144);
}

EngineOptions demo_options(std::int64_t context, std::int64_t max_rows) {
  return {.model_dir = KAKEYA_DEMO_MODEL,
          .backend = "cuda-emulated",
          .session = {.context = context, .max_rows = max_rows}};
}

// The engine of the options, but on the card of the stand-in.
Result<std::unique_ptr<EngineImpl>> open_on_card(const EngineOptions& options) {
  return EngineImpl::open(options, [](std::unique_ptr<Backend>) {
    return create_backend_on(create_cuda_driver(card_options()).value());
  });
}

// The tokens are the demo model's, with drafts.
TEST_F(CudaDriver, DecodesTheTokensOfTheEmulatorAndAllocatesNothingMeanwhile) {
  const EngineOptions options = demo_options(128, 8);
  const std::vector<TokenId> prompt = {2, 105, 3833};
  const GenerateOptions generate = {
      .max_tokens = 4, .draft_length = 2, .ignore_model_stop_ids = true};
  const auto emulated = EngineImpl::open(options).value();
  const auto expected = emulated->create_session().value();
  ASSERT_OK(expected->append(prompt));
  const auto engine = open_on_card(options).value();
  const auto session = engine->create_session().value();
  EXPECT_EQ(engine->budget().device_footprint().total_reserved(), record().bytes);
  ASSERT_OK(session->append(prompt));
  std::int64_t first = 0;
  std::int64_t last = 0;
  const auto result = session->generate(generate, [&](const TokenEvent&) {
    last = record().allocations + record().releases;
    if (first == 0) first = last;
    return true;
  });
  ASSERT_OK(result);
  EXPECT_GT(result->drafted, 0);
  EXPECT_EQ(result->ids, expected->generate(generate)->ids);
  EXPECT_EQ(last, first);
  EXPECT_EQ(engine->budget().device_footprint().total_reserved(), record().bytes);
}

// The questions to the library in a round: to launch graphs and kernels outside of them, to copy,
// where nobody waits for it and where somebody must, and to wait.
struct Calls {
  std::int64_t graphs = 0;
  std::int64_t launches = 0;
  std::int64_t uploads = 0;
  std::int64_t downloads = 0;
  std::int64_t pageable = 0;
  std::int64_t waits = 0;
  std::int64_t copies = 0;
  std::int64_t changes = 0;  // of graphs

  bool operator==(const Calls&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Calls& calls) {
  return out << calls.graphs << " graphs, " << calls.launches << " launches, " << calls.uploads
             << " uploads, " << calls.downloads << " downloads, " << calls.pageable
             << " pageable copies, " << calls.waits << " waits, " << calls.copies
             << " copies within the card, " << calls.changes << " changes of graphs";
}

Calls calls_between(const fake::Record& before, const fake::Record& now) {
  return {.graphs = now.graph_launches - before.graph_launches,
          .launches = now.single_launches - before.single_launches,
          .uploads = now.uploads - before.uploads,
          .downloads = now.downloads - before.downloads,
          .pageable = now.pageable - before.pageable,
          .waits = now.waits - before.waits,
          .copies = now.copies - before.copies,
          .changes = now.set_nodes - before.set_nodes};
}

// The calls of the rounds behind the first three, in which graphs are made.
std::vector<Calls> steady_calls(const fake::Record& record, std::int64_t draft_length) {
  const auto engine = open_on_card(demo_options(128, 8)).value();
  const auto session = engine->create_session().value();
  EXPECT_TRUE(session->append(std::vector<TokenId>{2, 105, 3833}));
  fake::Record before = record;
  std::vector<Calls> all;  // of the prompt's pass, then of each round
  const auto count = [&](const TokenEvent&) {
    const Calls calls = calls_between(before, record);
    if (!(calls == Calls{})) all.push_back(calls);  // not another token of the same round
    before = record;
    return true;
  };
  const auto result = session->generate(
      {.max_tokens = 9, .draft_length = draft_length, .ignore_model_stop_ids = true}, count);
  EXPECT_TRUE(result.has_value());
  EXPECT_EQ(all.size(), result->rounds.size() + 1);
  std::vector<Calls> rounds;
  for (std::size_t i = 0; i < result->rounds.size(); ++i) {
    if (result->rounds[i].drafted == draft_length) rounds.push_back(all[i + 1]);
  }
  rounds.erase(rounds.begin(), rounds.begin() + std::min<std::ptrdiff_t>(3, std::ssize(rounds)));
  return rounds;
}

// Positions and ids, lists of the largest logits, and that they are there go by way of memory that
// host and card reach: nothing is copied, the library waits for nothing, and graphs stay as they
// are. A copy within the card keeps rows that the drafter will read.
TEST_F(CudaDriver, APassIsOneGraphAndNothingElse) {
  const Calls pass = {
      .graphs = 1, .launches = 0, .uploads = 0, .downloads = 0, .waits = 0, .copies = 1};
  EXPECT_THAT(steady_calls(record(), 0), AllOf(SizeIs(Ge(3U)), Each(pass)));
  // The context of the drafter is extended, for which nobody waits, it drafts, and the target
  // verifies.
  const Calls round = {
      .graphs = 3, .launches = 0, .uploads = 0, .downloads = 0, .waits = 0, .copies = 1};
  EXPECT_THAT(steady_calls(record(), 2), AllOf(SizeIs(Ge(2U)), Each(round)));
}

// In passes of two sequences, whose attention runs side by side, that of the longer one in parts.
TEST_F(CudaDriver, DecodesSequencesTogetherAsTheEmulatorDoesAlone) {
  const EngineOptions options = demo_options(256, 64);
  const GenerateOptions generate = {
      .max_tokens = 3, .draft_length = 0, .ignore_model_stop_ids = true};
  const auto engine = open_on_card(options).value();
  const auto emulated = EngineImpl::open(options).value();
  const auto scheduler = engine->create_scheduler({.max_sequences = 2}).value();
  std::vector<std::vector<TokenId>> got(2);
  std::vector<std::vector<TokenId>> prompts;
  for (std::size_t i = 0; i < got.size(); ++i) {
    prompts.push_back(test::random_ids(i == 0 ? 66 : 5, 5 + i));
    Request request{.prompt = prompts.back()};
    request.generate = generate;
    request.on_token = [&got, i](const TokenEvent& token) {
      got[i].push_back(token.id);
      return true;
    };
    ASSERT_OK(scheduler->add(std::move(request)));
  }
  while (scheduler->step().value()) {
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto session = emulated->create_session().value();
    ASSERT_OK(session->append(prompts[i]));
    EXPECT_EQ(got[i], session->generate(generate)->ids) << i;
  }
}

// A batch does not change its order from step to step, nor the place of its tables, and attention
// finds its positions by itself.
TEST_F(CudaDriver, PassesOfTheSameSequencesHaveTheSameGraph) {
  const auto engine = open_on_card(demo_options(64, 16)).value();
  const auto scheduler = engine->create_scheduler({.max_sequences = 2}).value();
  for (std::uint64_t i = 0; i < 2; ++i) {
    Request request{.prompt = test::random_ids(3, i)};
    request.generate = {.max_tokens = 9, .draft_length = 0, .ignore_model_stop_ids = true};
    ASSERT_OK(scheduler->add(std::move(request)));
  }
  fake::Record before = record();
  std::vector<Calls> steps;
  for (int step = 0; step < 6; ++step) {
    ASSERT_TRUE(scheduler->step().value());
    steps.push_back(calls_between(before, record()));
    before = record();
  }
  const Calls pass = {
      .graphs = 1, .launches = 0, .uploads = 0, .downloads = 0, .waits = 0, .copies = 2};
  EXPECT_THAT(std::span(steps).last(2), Each(pass));
}

// One after the other, each by itself: the tables of one take the place of the other's.
TEST_F(CudaDriver, SequencesThatTakeTurnsHaveTheSameGraphs) {
  const auto engine = open_on_card(demo_options(64, 16)).value();
  std::vector<std::unique_ptr<Session>> sessions;
  for (std::uint64_t i = 0; i < 2; ++i) {
    sessions.push_back(engine->create_session().value());
    ASSERT_OK(sessions.back()->append(test::random_ids(3, i)));
  }
  for (int turn = 0; turn < 6; ++turn) {
    const fake::Record before = record();
    ASSERT_OK(sessions[static_cast<std::size_t>(turn) % 2]->generate(
        {.max_tokens = 1, .draft_length = 0, .ignore_model_stop_ids = true}));
    if (turn < 4) continue;
    EXPECT_EQ(record().graph_launches - before.graph_launches, 1) << turn;
    EXPECT_EQ(record().set_nodes, before.set_nodes) << turn;
  }
}

TEST_F(CudaDriver, AModelThatDoesNotFitOnTheCardIsRefusedBeforeItIsLoaded) {
  set("memory=4194304");
  const auto engine = open_on_card(
      {.model_dir = KAKEYA_DEMO_MODEL, .backend = "cuda-emulated", .draft = {.source = "none"}});
  ASSERT_FALSE(engine.has_value());
  EXPECT_EQ(engine.error().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(engine.error().message(),
              StartsWith("memory of cuda:0, of which 4.0 MiB is free, is too small: this model and "
                         "one session of 8192 tokens need weights "));
  EXPECT_EQ(record().allocations, 0);
}

}  // namespace
}  // namespace kakeya::cuda
