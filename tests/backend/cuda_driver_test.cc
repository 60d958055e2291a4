// The driver of cards, over a stand-in for NVIDIA's library (fake_libcuda.cc): what it asks of the
// library, in which order, what it computes, and what it says when something fails. What a card
// does is not seen here.
#include "backend/cuda/cuda_driver.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/choose.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/fake_libcuda.h"
#include "model/test_model.h"
#include "runtime/engine_impl.h"

namespace kakeya::cuda {
namespace {

using test::ForwardRecord;
using test::TestModel;
using testing::HasSubstr;
using testing::StartsWith;

CardOptions card_options() {
  alignas(64) static constexpr std::uint32_t kImage[] = {fake::kImageMagic, 0};
  return {.device = 0,
          .library = KAKEYA_FAKE_LIBCUDA,
          .image = {std::as_bytes(std::span(kImage)), 12000}};
}

class CudaDriver : public testing::Test {
 protected:
  void SetUp() override {
    void* const library = ::dlopen(KAKEYA_FAKE_LIBCUDA, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << ::dlerror();
    const auto function =
        reinterpret_cast<fake::RecordFunction>(::dlsym(library, fake::kRecordSymbol));
    ASSERT_NE(function, nullptr);
    record_ = function();
    *record_ = {};
    set("");
  }
  // Whatever was asked for was given back, and nothing was asked that a card would refuse.
  void TearDown() override {
    EXPECT_EQ(record_->misuses, 0) << record_->misuse;
    EXPECT_EQ(record_->bytes, 0U);
    EXPECT_EQ(record_->releases, record_->allocations);
    EXPECT_EQ(record_->objects, 0);
  }
  void set(const char* settings) { ::setenv(fake::kSettings, settings, 1); }
  const fake::Record& record() const { return *record_; }

  static std::unique_ptr<Driver> create() {
    auto driver = create_cuda_driver(card_options());
    EXPECT_TRUE(driver.has_value()) << driver.error().message();
    return std::move(driver).value();
  }
  std::string refusal(const char* settings, const CardOptions& options = card_options()) {
    set(settings);
    const auto card = examine_card(options);
    const auto driver = create_cuda_driver(options);
    EXPECT_EQ(card.has_value(), driver.has_value());
    return driver ? "" : driver.error().message();
  }

  fake::Record* record_ = nullptr;
};

// Floats in the memory of a driver.
class Floats {
 public:
  Floats(Driver& driver, std::vector<float> values)
      : driver_(driver),
        count_(values.size()),
        buffer_(
            budget_.allocate(MemoryClass::kActivations, count_ * sizeof(float), space()).value()) {
    write(values);
  }
  MemorySpace& space() const { return driver_.memory(); }
  DevicePointer<float> data() const { return buffer_.device<float>(); }
  void write(const std::vector<float>& values) {
    upload(space(), std::span<const float>(values), data());
  }
  std::vector<float> read() const {
    std::vector<float> values(count_);
    download(space(), DevicePointer<const float>(data()), std::span(values));
    return values;
  }
  // Each is doubled.
  Status add(std::uint32_t shared_words = 0) {
    const device::AddParams parameters = {data().address(), data().address(), 1.0F,
                                          static_cast<std::int64_t>(count_), data().address()};
    const auto blocks = static_cast<std::int64_t>((count_ + 127) / 128);
    LaunchList launches;
    launches.add(Kernel::add, {blocks, 1, 128, shared_words}, &parameters);
    return driver_.launch(launches);
  }

 private:
  Driver& driver_;
  std::size_t count_;
  MemoryBudget budget_;
  Buffer buffer_;
};

std::vector<float> count_up(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
  return values;
}

TEST_F(CudaDriver, CopiesAndLaunchesTakeEffectInTheirOrder) {
  const auto driver = create();
  Floats floats(*driver, {1.0F, 2.0F, 3.0F});
  ASSERT_TRUE(floats.add());
  // Nobody needs it when the upload returns.
  std::vector<float> other(3, 10.0F);
  floats.write(other);
  other.assign(3, 77.0F);
  ASSERT_TRUE(floats.add());
  ASSERT_TRUE(floats.add());
  EXPECT_EQ(floats.read(), std::vector<float>(3, 40.0F));
  floats.space().fill(floats.data().as<std::byte>(), std::byte{0}, 8);
  EXPECT_EQ(floats.read(), (std::vector<float>{0.0F, 0.0F, 40.0F}));
  ASSERT_TRUE(driver->synchronize());
}

TEST_F(CudaDriver, GivesMemoryBackWhenWhatUsesItHasRun) {
  const auto driver = create();
  {
    Floats floats(*driver, {1.0F});
    ASSERT_TRUE(floats.add());
  }
  EXPECT_EQ(record().releases, 1);
  EXPECT_EQ(record().misuses, 0) << record().misuse;
}

TEST_F(CudaDriver, CopiesBetweenPiecesThatOverlap) {
  const auto driver = create();
  constexpr std::size_t kCount = 100;
  for (const std::size_t distance : {1U, 7U, 60U}) {
    const std::vector<float> values = count_up(kCount);
    Floats down(*driver, values);
    Floats up(*driver, values);
    const auto at = [](const Floats& floats, std::size_t index) {
      return (floats.data() + static_cast<std::int64_t>(index)).as<std::byte>();
    };
    const std::uint64_t bytes = (kCount - distance) * sizeof(float);
    down.space().copy(at(down, distance), at(down, 0), bytes);
    up.space().copy(at(up, 0), at(up, distance), bytes);
    const std::vector<float> got_down = down.read();
    const std::vector<float> got_up = up.read();
    for (std::size_t i = 0; i < kCount - distance; ++i) {
      ASSERT_EQ(got_down[i], values[i + distance]);
      ASSERT_EQ(got_up[i + distance], values[i]);
    }
  }
}

TEST_F(CudaDriver, AsksForLargeSharedMemoryOnce) {
  const auto driver = create();
  Floats floats(*driver, {1.0F});
  ASSERT_TRUE(floats.add(12 << 10));
  EXPECT_EQ(record().attributes, 0);
  ASSERT_TRUE(floats.add(20 << 10));
  ASSERT_TRUE(floats.add(18 << 10));
  EXPECT_EQ(record().attributes, 1);
  EXPECT_EQ(floats.read(), (std::vector<float>{8.0F}));
}

// Ten launches or so, each of which doubles the first `count` floats.
LaunchList doublings(const Floats& floats, std::size_t launches, std::int64_t count) {
  LaunchList list;
  for (std::size_t i = 0; i < launches; ++i) {
    const device::AddParams parameters = {floats.data().address(), floats.data().address(), 1.0F,
                                          i == 2 ? count : 3, floats.data().address()};
    list.add(Kernel::add, {1, 1, 128, 0}, &parameters);
  }
  return list;
}

TEST_F(CudaDriver, LaunchesAListThatComesAgainAsAGraph) {
  const auto driver = create();
  Floats floats(*driver, {1.0F, 1.0F, 1.0F});
  ASSERT_TRUE(driver->launch(doublings(floats, 8, 3)));
  EXPECT_EQ(record().graphs, 0) << "it came once";
  ASSERT_TRUE(driver->launch(doublings(floats, 8, 3)));
  EXPECT_EQ(floats.read(), std::vector<float>(3, 0x1p16F));
  EXPECT_EQ(record().graphs, 1);
  // What one kernel is handed differs, and is as it was later.
  ASSERT_TRUE(driver->launch(doublings(floats, 8, 1)));
  EXPECT_EQ(record().set_nodes, 1);
  ASSERT_TRUE(driver->launch(doublings(floats, 8, 1)));
  EXPECT_EQ(record().set_nodes, 1);
  ASSERT_TRUE(driver->launch(doublings(floats, 8, 3)));
  EXPECT_EQ(floats.read(), (std::vector<float>{0x1p40F, 0x1p38F, 0x1p38F}));
  EXPECT_EQ(record().set_nodes, 2);
  EXPECT_EQ(record().graphs, 1);
  EXPECT_EQ(record().graph_launches, 4);
}

TEST_F(CudaDriver, KeepsTheGraphsOfListsThatComeOften) {
  const auto driver = create();
  Floats floats(*driver, {0.0F, 0.0F, 0.0F});
  for (std::size_t other = 9; other < 60; ++other) {
    ASSERT_TRUE(driver->launch(doublings(floats, 8, 3)));
    ASSERT_TRUE(driver->launch(doublings(floats, other, 3)));
  }
  EXPECT_EQ(record().graphs, 1);
  EXPECT_EQ(record().graph_launches, 50);
  // Too short for one.
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(driver->launch(doublings(floats, 7, 3)));
  EXPECT_EQ(record().graphs, 1);
}

// As ALaunchThatIsRefused..., where a graph is refused: its launches are made one by one.
TEST_F(CudaDriver, NamesTheKernelOfAGraphThatIsRefused) {
  set("fail_launch=9");
  const auto driver = create();
  Floats floats(*driver, {1.0F, 1.0F, 1.0F});
  ASSERT_TRUE(driver->launch(doublings(floats, 8, 3)));
  ASSERT_TRUE(driver->launch(doublings(floats, 8, 3)));
  EXPECT_EQ(record().graph_launches, 1);
  EXPECT_EQ(floats.read(), std::vector<float>(3, 0x1p16F));
  LaunchList impossible = doublings(floats, 8, 3);
  impossible.add(Kernel::softcap, {1, 1, 128, 1 << 20}, impossible.parameters(0));
  const Status refused = driver->launch(impossible);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), StartsWith("cuda:0 refuses kernel softcap: "));
}

TEST_F(CudaDriver, ServesSeveralThreads) {
  const auto driver = create();
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&driver, t] {
      for (int i = 0; i < 20; ++i) {
        const auto value = static_cast<float>(100 * t + i);
        Floats floats(*driver, std::vector<float>(200, value));
        EXPECT_TRUE(floats.add());
        EXPECT_EQ(floats.read(), std::vector<float>(200, 2.0F * value));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(CudaDriver, IsOneOfSeveralOnACard) {
  const auto first = create();
  Floats floats(*first, {1.0F});
  {
    const auto second = create();
    Floats others(*second, {3.0F});
    ASSERT_TRUE(floats.add());
    ASSERT_TRUE(others.add());
    EXPECT_EQ(others.read(), std::vector<float>{6.0F});
  }
  ASSERT_TRUE(floats.add());
  EXPECT_EQ(floats.read(), std::vector<float>{4.0F});
}

TEST_F(CudaDriver, ALaunchThatIsRefusedEndsItsPassAndNoOther) {
  set("fail_launch=2");
  const auto backend = create_backend_on(create());
  MemoryBudget budget;
  const auto executor = backend->create_executor({}, budget).value();
  const Buffer buffer = budget.allocate(MemoryClass::kActivations, 256, backend->memory()).value();
  const Rows rows = {buffer.device<float>(), 1, 64};
  for (int i = 0; i < 3; ++i) executor->softcap(rows, 1.0F);
  const Status status = executor->end({});
  EXPECT_EQ(record().launches, 2);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), StatusCode::kInternal);
  EXPECT_EQ(status.error().message(),
            "cuda:0 refuses kernel softcap: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (too many resources "
            "requested for launch)");
  executor->softcap(rows, 1.0F);
  EXPECT_TRUE(executor->end({}));
}

TEST_F(CudaDriver, AKernelThatFailsEndsEverythingWithOneLine) {
  set("fault_launch=2");
  const auto driver = create();
  Floats floats(*driver, {1.0F});
  ASSERT_TRUE(floats.add());
  ASSERT_TRUE(floats.add());
  ASSERT_TRUE(floats.add());
  const Status status = driver->synchronize();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), StatusCode::kUnavailable);
  const std::string& line = status.error().message();
  EXPECT_EQ(line,
            "cuda:0, kernel add or one before it (CUDA_LAUNCH_BLOCKING=1 tells which): "
            "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)");
  const std::int64_t calls = record().calls;
  EXPECT_EQ(floats.add().error().message(), line);
  EXPECT_EQ(driver->synchronize().error().message(), line);
  EXPECT_TRUE(std::isnan(floats.read()[0]));
  floats.write({1.0F});
  MemoryBudget budget;
  const auto refused = budget.allocate(MemoryClass::kActivations, 64, driver->memory());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message(), line);
  EXPECT_EQ(record().calls, calls) << "the library was asked again";
}

// Where the library tells it at the next launch.
TEST_F(CudaDriver, AKernelThatFailsIsNotTakenForALaunchThatIsRefused) {
  set("eager=1 fault_launch=1");
  const auto backend = create_backend_on(create());
  MemoryBudget budget;
  const auto executor = backend->create_executor({}, budget).value();
  const Buffer buffer = budget.allocate(MemoryClass::kActivations, 256, backend->memory()).value();
  for (int pass = 0; pass < 3; ++pass) {
    for (int i = 0; i < 2; ++i) executor->softcap({buffer.device<float>(), 1, 64}, 1.0F);
    const Status status = executor->end({});
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message(), StartsWith("cuda:0, kernel softcap or one before it"));
  }
}

// No token is made of what a card that failed has left behind.
TEST_F(CudaDriver, AChoiceThatFailsChoosesNothing) {
  for (const bool fails : {false, true}) {
    set(fails ? "fault_launch=1" : "");
    const auto backend = create_backend_on(create());
    MemoryBudget budget;
    ExecutorPlan plan;
    plan.max_rows = 4;
    plan.max_query_width = 64;
    const auto executor = backend->create_executor(plan, budget).value();
    const Buffer logits = budget.allocate(MemoryClass::kLogits, 256, backend->memory()).value();
    std::vector<float> values(64, 1.0F);
    values[17] = 2.0F;
    upload(backend->memory(), std::span<const float>(values), logits.device<float>());
    Sampler sampler = Sampler::create(64, budget).value();
    sampler.set_options({}, {});
    std::array<TokenId, 1> chosen = {-1};
    SequenceChoice choice{.logits = {logits.device<float>(), 1, 64},
                          .sampler = &sampler,
                          .most = 1,
                          .chosen = chosen};
    class NoCopies final : public HostCopies {
     public:
      HostRows download(Rows /*rows*/) override {
        ADD_FAILURE() << "the host chose";
        return {};
      }
    } copies;
    executor->choose({&choice, 1}, copies);
    EXPECT_EQ(choice.count, fails ? 0 : 1);
    EXPECT_EQ(chosen[0], fails ? -1 : 17);
    ASSERT_EQ(choice.status.has_value(), !fails);
    if (!fails) continue;
    EXPECT_THAT(choice.status.error().message(), StartsWith("cuda:0, kernel largest"));
  }
}

TEST_F(CudaDriver, SaysWhatIsFreeWhereThereIsNoMoreMemory) {
  set("memory=1048576 fail_allocation=2");
  const auto driver = create();
  MemoryBudget budget;
  const auto allocate = [&](std::uint64_t bytes) {
    return budget.allocate(MemoryClass::kWeights, bytes, driver->memory());
  };
  const auto first = allocate(1000);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(allocate(1000).error().message(),
            "cuda:0 has no 1000 B for weights, 1023.0 KiB are free");
  EXPECT_EQ(allocate(2 << 20).error().message(),
            "cuda:0 has no 2.0 MiB for weights, 1023.0 KiB are free");
  EXPECT_TRUE(allocate(1000).has_value()) << "the card still works";
  EXPECT_EQ(budget.device_footprint().total_reserved(), record().bytes);
}

TEST_F(CudaDriver, SaysInOneLineWhyThereIsNoCard) {
  CardOptions options = card_options();
  options.library = "libcuda-of-nobody.so.1";
  EXPECT_THAT(refusal("", options),
              StartsWith("there is no NVIDIA driver here: libcuda-of-nobody.so.1: "));
  options = card_options();
  options.image = {};
  EXPECT_EQ(refusal("", options), "this build was made without nvcc and has no code for cards");
  options = card_options();
  options.device = 2;
  EXPECT_EQ(refusal("devices=2", options),
            "expected a card with number 2, but the NVIDIA driver shows 2, counted from 0");
  EXPECT_EQ(refusal("devices=0"),
            "the NVIDIA driver does not start: CUDA_ERROR_NO_DEVICE (no CUDA-capable device is "
            "detected)");
  EXPECT_EQ(refusal("driver=11040"),
            "the NVIDIA driver is too old: it knows CUDA 11.4, expected 12.0 or later");
  EXPECT_EQ(refusal("capability=75"),
            "card 0, Stand-in, has compute capability 7.5, expected 8.0 or later");
  const std::uint64_t no_image[] = {0};
  options = card_options();
  options.image.bytes = std::as_bytes(std::span(no_image));
  EXPECT_EQ(refusal("", options),
            "cuda:0 does not load the kernels: CUDA_ERROR_INVALID_IMAGE (device kernel image is "
            "invalid)");
  EXPECT_EQ(refusal(""), "");
}

TEST_F(CudaDriver, IsNoDriverWithoutItsFunctions) {
  CardOptions options = card_options();
  options.library = "libm.so.6";
  EXPECT_EQ(refusal("", options),
            "libm.so.6 has no function cuInit: it is too old, or no driver of NVIDIA's");
}

TEST_F(CudaDriver, DescribesTheCard) {
  set("capability=86 memory=1000000");
  const Card card = examine_card(card_options()).value();
  EXPECT_EQ(card.name, "Stand-in");
  EXPECT_EQ(card.capability_major, 8);
  EXPECT_EQ(card.capability_minor, 6);
  EXPECT_EQ(card.memory_bytes, 1000000U);
  EXPECT_EQ(card.free_bytes, 1000000U);
}

TEST(CudaBackend, NamesWhatIsNoCard) {
  for (const char* name : {"cuda/", "cuda/x", "cuda/-1", "cuda/1x", "cuda/99999999999"}) {
    const auto backend = create_backend({.name = name, .threads = {}});
    ASSERT_FALSE(backend.has_value());
    EXPECT_EQ(backend.error().message(),
              std::string("EngineOptions::backend must be cuda or cuda/NUMBER of a card but is '") +
                  name + "'");
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

// Through all kernels: experts, rings, one stored vector, rows of several chunks.
void expect_the_bits_of_the_emulator(const std::function<std::unique_ptr<Backend>()>& create_card) {
  for (const Compute compute : {Compute::kF32, Compute::kFast}) {
    const LoadedNetwork emulated =
        load_network("gemma4-moe", create_emulated_backend().value(), compute);
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

// Of the demo model, with drafts.
TEST_F(CudaDriver, DecodesTheTokensOfTheEmulatorAndAllocatesNothingMeanwhile) {
  const EngineOptions options = {.model_dir = KAKEYA_DEMO_MODEL,
                                 .backend = "cuda-emulated",
                                 .session = {.context = 128, .max_rows = 8}};
  const std::vector<TokenId> prompt = {2, 105, 3833};
  const GenerateOptions generate = {
      .max_tokens = 4, .draft_length = 2, .ignore_model_stop_ids = true};
  const auto emulated = EngineImpl::open(options).value();
  const auto expected = emulated->create_session().value();
  ASSERT_OK(expected->append(prompt));
  const auto engine = EngineImpl::open(options, [](std::unique_ptr<Backend>) {
                        return create_backend_on(create());
                      }).value();
  const auto session = engine->create_session().value();
  EXPECT_EQ(engine->budget().device_footprint().total_reserved(), record().bytes);
  ASSERT_OK(session->append(prompt));
  std::int64_t first = 0;
  std::int64_t last = 0;
  const auto result = session->generate(generate, [&](TokenId) {
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

TEST_F(CudaDriver, AModelThatDoesNotFitOnTheCardIsRefusedBeforeItIsLoaded) {
  set("memory=4194304");
  const auto engine = EngineImpl::open(
      {.model_dir = KAKEYA_DEMO_MODEL, .backend = "cuda-emulated", .draft = {.source = "none"}},
      [](std::unique_ptr<Backend>) { return create_backend_on(create()); });
  ASSERT_FALSE(engine.has_value());
  EXPECT_EQ(engine.error().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(engine.error().message(),
              StartsWith("memory of cuda:0, of which 4.0 MiB is free, is too small: this model and "
                         "one session of 8192 tokens need weights "));
  EXPECT_EQ(record().allocations, 0);
}

}  // namespace
}  // namespace kakeya::cuda
