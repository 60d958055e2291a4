// Kernel fusion of the backend for cards: which launches become one, and that what a pass computes
// stays as it is, bit for bit.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/fuse.h"
#include "backend/emulated/emulated_driver.h"
#include "formats/model_config.h"
#include "formats/model_tensors.h"
#include "model/random_source.h"
#include "model/test_model.h"

namespace kakeya::cuda {
namespace {

constexpr std::int64_t kWidth = 256;
constexpr std::int64_t kRows = 3;

// Launches over rows that nobody runs. Places are numbers of rows' arrays.
class Launches {
 public:
  void norm(int from, int to) {
    const device::NormParams p = {at(from), nullptr, 1e-6F, kRows, kWidth, at(to)};
    list_.add(Kernel::rms_norm, {kRows}, &p);
  }
  void add(int a, int b, int to) {
    const device::AddParams p = {at(a), at(b), 1.0F, kRows * kWidth, at(to)};
    list_.add(Kernel::add, {6}, &p);
  }
  void product(int from, int to) {
    device::ProductParams p = {};
    p.rows = {at(from), kRows, kWidth, nullptr, nullptr, nullptr};
    p.weight.rows = kWidth;
    p.out = at(to);
    list_.add(Kernel::product, {32}, &p);
  }
  // Heads of a quarter of a row.
  void norm_heads(int from, int to) {
    const device::NormParams p = {at(from), nullptr, 1e-6F, 4 * kRows, kWidth / 4, at(to)};
    list_.add(Kernel::rms_norm, {4 * kRows}, &p);
  }
  void rope(int x) {
    const device::RopeParams p = {at(x), at(98), at(99), kRows, kWidth, kWidth / 8};
    list_.add(Kernel::rope, {1, kRows}, &p);
  }
  void unknown() {
    const device::SoftcapParams p = {at(90), 1.0F, 1};
    list_.add(Kernel::softcap, {1}, &p);
  }

  std::string fused() const {
    const FusedLaunches fused = fuse(list_, kRows);
    std::string names;
    for (std::size_t i = 0; i < fused.launches.size(); ++i) {
      names += (i == 0 ? "" : " ") +
               std::string(kKernelNames[static_cast<std::size_t>(fused.launches.kernel(i))]);
    }
    return names;
  }
  const LaunchList& list() const { return list_; }

 private:
  static float* at(int array) {
    return reinterpret_cast<float*>(std::uintptr_t{0x10000} +
                                    static_cast<std::uintptr_t>(array) * 0x4000);
  }

  LaunchList list_;
};

TEST(CudaFusion, MakesOneKernelOfWhatFollowsAProduct) {
  Launches launches;
  launches.product(0, 1);
  launches.norm(1, 1);
  launches.add(2, 1, 2);
  launches.norm(2, 3);
  launches.product(3, 4);
  EXPECT_EQ(launches.fused(), "product residual_steps product");
}

// Norms of the same rows for several products are brought together, and a norm of the first
// product's output waits for that of the second one's.
TEST(CudaFusion, BringsTogetherWhatLiesApart) {
  Launches launches;
  launches.norm(0, 1);
  launches.product(1, 2);
  launches.norm(2, 2);
  launches.norm(0, 3);
  launches.product(3, 4);
  launches.norm(4, 4);
  launches.add(2, 4, 0);
  EXPECT_EQ(launches.fused(), "row_steps product product row_steps");
}

TEST(CudaFusion, KeepsTheOrderOfWhatSharesMemory) {
  Launches launches;
  launches.norm(0, 1);
  launches.product(1, 2);
  launches.norm(3, 1);  // writes what the product reads
  launches.product(1, 4);
  EXPECT_EQ(launches.fused(), "rms_norm product rms_norm product");
  Launches unknown;
  unknown.norm(0, 1);
  unknown.unknown();
  unknown.norm(0, 2);
  EXPECT_EQ(unknown.fused(), "rms_norm softcap rms_norm");
}

TEST(CudaFusion, TakesHeadsThroughNormAndRotation) {
  Launches launches;
  launches.product(0, 1);
  launches.norm_heads(1, 1);
  launches.rope(1);
  launches.product(0, 2);
  launches.product(0, 3);
  launches.norm_heads(3, 3);
  launches.norm_heads(2, 2);
  launches.rope(2);
  EXPECT_EQ(launches.fused(), "product product product head_steps");
  // A norm that reads what another one's track writes stays behind it.
  Launches shared;
  shared.norm_heads(1, 2);
  shared.norm_heads(1, 1);
  shared.rope(1);
  EXPECT_EQ(shared.fused(), "rms_norm head_steps");
}

TEST(CudaFusion, LetsLaunchesWaitForWhatTheyShareMemoryWithAlone) {
  Launches launches;
  launches.unknown();
  launches.norm(0, 1);
  launches.product(1, 2);
  launches.product(2, 3);
  launches.product(1, 4);  // beside the two before
  launches.add(3, 4, 5);
  const LaunchList fused = fuse(launches.list(), kRows).launches;
  const std::vector<std::vector<std::uint32_t>> expected = {{}, {0}, {1}, {2}, {1}, {4, 3}};
  ASSERT_EQ(fused.size(), expected.size());
  for (std::size_t i = 0; i < fused.size(); ++i) {
    const auto waits = fused.waits_for(i);
    EXPECT_EQ(std::vector(waits.begin(), waits.end()), expected[i]) << i;
  }
}

// Rows of values are stored at their positions, from where nothing else leads to the inputs.
TEST(CudaFusion, LetsRowsOfTheCacheWaitForTheirPositions) {
  LaunchList list;
  std::int64_t inputs[2] = {};
  float rows[64];
  const std::uint64_t table = 0;
  const device::TakeInputsParams take = {nullptr, nullptr, &inputs[0], nullptr, 2, 0};
  list.add(Kernel::take_inputs, {}, &take);
  device::StoreParams store = {};
  store.rows = rows;
  store.to.cache.num_kv_heads = 1;
  store.to.cache.head_dim = 64;
  store.to.positions = &inputs[1];
  store.to.num_sequences = 1;
  store.to.sequences[0] = {1, nullptr, &table, 0};
  list.add(Kernel::store, {1, 1, 32}, &store);
  const LaunchList fused = fuse(list, 1).launches;
  ASSERT_EQ(fused.waits_for(1).size(), 1U);
  EXPECT_EQ(fused.waits_for(1)[0], 0U);
}

// Attention of two sequences, each from sums of its own: it waits for its own rows of the cache.
TEST(CudaFusion, LetsAttentionOfSequencesRunSideBySide) {
  LaunchList list;
  const auto at = [](int place) {
    return reinterpret_cast<float*>(std::uintptr_t{0x10000} +
                                    static_cast<std::uintptr_t>(place) * 0x4000);
  };
  const auto table = [&](int sequence) {
    return reinterpret_cast<const std::uint64_t*>(at(50 + sequence));
  };
  device::CachedRows cache = {};
  cache.num_kv_heads = 1;
  cache.head_dim = 64;
  for (const int sequence : {0, 1}) {
    device::StoreParams store = {};
    store.rows = at(sequence);
    store.to.cache = cache;
    store.to.num_sequences = 1;
    store.to.sequences[0] = {1, nullptr, table(sequence), 0};
    list.add(Kernel::store, {1, 1, 32}, &store);
  }
  for (const int sequence : {0, 1}) {
    device::AttentionParams p = {};
    p.queries = at(10 + sequence);
    p.num_heads = 1;
    p.cache = cache;
    p.cache.values = table(sequence);
    p.rows = 1;
    p.spans = 2;
    p.partials = at(20 + sequence);
    p.room = 2 * 66;
    p.out = at(30 + sequence);
    list.add(Kernel::tensor_attention_part, {1, 2, 256}, &p);
    list.add(Kernel::join_attention_parts, {1, 1, 256}, &p);
  }
  const LaunchList fused = fuse(list, 1).launches;
  const std::vector<std::vector<std::uint32_t>> expected = {{}, {}, {0}, {2}, {1}, {4}};
  ASSERT_EQ(fused.size(), expected.size());
  for (std::size_t i = 0; i < fused.size(); ++i) {
    const auto waits = fused.waits_for(i);
    EXPECT_EQ(std::vector(waits.begin(), waits.end()), expected[i]) << i;
  }
}

// A list that is recorded again says what differs, or that it is another one.
TEST(CudaFusion, RecordsWhatDiffers) {
  LaunchList list;
  const auto record = [&](std::initializer_list<float> caps, bool ends_with_norm) {
    list.begin_again();
    for (const float cap : caps) {
      const device::SoftcapParams p = {nullptr, cap, 5};
      list.record(Kernel::softcap, {3}, &p);
    }
    const device::NormParams norm = {nullptr, nullptr, 1e-6F, 1, 32, nullptr};
    if (ends_with_norm) list.record(Kernel::rms_norm, {1}, &norm);
    list.end_again();
  };
  record({1.0F, 2.0F, 3.0F}, true);
  const std::uint64_t identity = list.identity();
  const std::uint64_t change = list.last_change();
  record({1.0F, 2.0F, 3.0F}, true);
  EXPECT_EQ(list.identity(), identity);
  EXPECT_EQ(list.last_change(), change);
  record({1.0F, 7.0F, 3.0F}, true);
  EXPECT_EQ(list.identity(), identity);
  EXPECT_EQ(list.size(), 4U);
  for (std::size_t i = 0; i < list.size(); ++i) EXPECT_EQ(list.change(i) > change, i == 1) << i;
  EXPECT_EQ(static_cast<const device::SoftcapParams*>(list.parameters(1))->cap, 7.0F);
  const LaunchList copy = list;
  EXPECT_NE(copy.identity(), identity);
  record({1.0F, 7.0F, 3.0F}, false);
  EXPECT_NE(list.identity(), identity);
  EXPECT_EQ(list.size(), 3U);
  const std::uint64_t shorter = list.identity();
  record({1.0F, 7.0F}, true);
  EXPECT_NE(list.identity(), shorter);
  EXPECT_EQ(list.kernel(2), Kernel::rms_norm);
}

// Lists that are kept follow one that is recorded again, and another one between.
TEST(CudaFusion, SetsWhatWasRecordedAnew) {
  FusedLists lists;
  LaunchList one;
  LaunchList other;
  const auto record = [](LaunchList& list, float cap) {
    list.begin_again();
    for (const float each : {1.0F, cap, 3.0F}) {
      const device::SoftcapParams p = {nullptr, each, 5};
      list.record(Kernel::softcap, {3}, &p);
    }
    list.end_again();
  };
  const auto cap = [](const LaunchList& fused) {
    return static_cast<const device::SoftcapParams*>(fused.parameters(1))->cap;
  };
  for (const float next : {2.0F, 5.0F, 5.0F, 6.0F}) {
    record(one, next);
    EXPECT_EQ(cap(lists.of(one, 1)), next);
  }
  record(other, 9.0F);
  EXPECT_EQ(cap(lists.of(other, 1)), 9.0F);
  EXPECT_EQ(cap(lists.of(one, 1)), 6.0F);
  record(other, 10.0F);
  record(one, 7.0F);
  EXPECT_EQ(cap(lists.of(other, 1)), 10.0F);
  EXPECT_EQ(cap(lists.of(one, 1)), 7.0F);
}

// Steps that are not the same run of a row in each block.
TEST(CudaFusion, LeavesRowsAloneThatOverlapOtherwise) {
  Launches launches;
  launches.norm(0, 1);
  const device::NormParams shifted = {
      reinterpret_cast<float*>(std::uintptr_t{0x14000} + 1024), nullptr, 1e-6F, kRows, kWidth,
      reinterpret_cast<float*>(std::uintptr_t{0x40000})};
  LaunchList list = launches.list();
  list.add(Kernel::rms_norm, {kRows}, &shifted);
  EXPECT_EQ(fuse(list, kRows).launches.size(), 2U);
}

TEST(CudaFusion, KeepsListsAndSetsWhatDiffersInThem) {
  FusedLists lists;
  Launches launches;
  launches.norm(0, 1);
  launches.norm(1, 2);
  launches.unknown();
  EXPECT_EQ(lists.of(launches.list(), kRows).size(), 2U);
  LaunchList other = launches.list();
  LaunchList softcap;
  const device::SoftcapParams p = {nullptr, 7.0F, 5};
  softcap.add(Kernel::softcap, {3}, &p);
  other.replace(2, softcap, 0);
  const LaunchList& fused = lists.of(other, kRows);
  ASSERT_EQ(fused.size(), 2U);
  EXPECT_EQ(fused.shape(1), (LaunchShape{3}));
  EXPECT_EQ(static_cast<const device::SoftcapParams*>(fused.parameters(1))->cap, 7.0F);
  // Another place of a row that is fused.
  Launches moved;
  moved.norm(0, 1);
  moved.norm(1, 5);
  moved.unknown();
  const LaunchList& anew = lists.of(moved.list(), kRows);
  const auto* const steps = static_cast<const device::RowStepsParams*>(anew.parameters(0));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(steps->steps[1].out), 0x10000U + 5 * 0x4000U);
}

#if defined(__has_builtin)
#if __has_builtin(__builtin_clear_padding)
// Bytes between members are what happened to be on the stack.
TEST(CudaFusion, LaunchesAreEqualWhateverLiesBetweenTheirMembers) {
  const auto norms = [](int stack) {
    device::NormParams p;
    std::memset(&p, stack, sizeof(p));
    p.x = nullptr;
    p.weight = nullptr;
    p.eps = 1e-6F;
    p.count = kRows;
    p.width = kWidth;
    p.out = nullptr;
    LaunchList list;
    list.add(Kernel::rms_norm, {kRows}, &p);
    return list;
  };
  static_assert(sizeof(device::NormParams) > 3 * sizeof(void*) + 2 * sizeof(std::int64_t) + 4);
  EXPECT_TRUE(norms(0).has_equal_launch(norms(0xff), 0));
}
#endif
#endif

// The demo model's shape, so that all rules apply, with random weights of two types.
TEST(CudaFusion, GivesTheBitsOfLaunchesByThemselves) {
  const ModelConfig config = load_model_config(KAKEYA_DEMO_MODEL).value();
  ThreadPool pool({.num_threads = 1});
  for (const auto format :
       {std::optional<QuantizedFormat>(), std::optional(QuantizedFormat::kQ40)}) {
    std::vector<std::vector<float>> logits;
    for (const bool one_by_one : {true, false}) {
      RandomSource source(expected_tensors(config), 3, pool, format);
      auto backend = create_emulated_backend({.runs_one_by_one = one_by_one}).value();
      const auto model = test::TestModel::load(config, source, std::move(backend), Compute::kFast);
      ASSERT_NE(model, nullptr);
      const auto timeline = model->timeline({.context = 16, .max_rows = 4}, 4);
      const std::vector<TokenId> ids = test::random_ids(5, 5);
      logits.push_back(test::run(*timeline, ids, {}, 4).logits);
    }
    EXPECT_EQ(logits[0], logits[1]);
  }
}

}  // namespace
}  // namespace kakeya::cuda
