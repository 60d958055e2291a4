#include "kv/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "model/test_model.h"

namespace kakeya::test {
namespace {

KvCacheSpec small_spec(std::int64_t window, std::int64_t max_rows, std::int64_t context) {
  return {.layers = {{.num_kv_heads = 1, .head_dim = 2, .window = window, .format = KvFormat::kF32},
                     {.num_kv_heads = 2, .head_dim = 2, .window = 0, .format = KvFormat::kBf16}},
          .context = context,
          .max_rows = max_rows};
}

void advance(KvCache& cache, std::int64_t rows) {
  ASSERT_OK(cache.reserve(rows));
  cache.commit(rows);
}

TEST(KvCache, GivesARingTheWindowAndOneBlockLessOneRow) {
  MemoryBudget budget;
  const auto cache = KvCache::create(small_spec(8, 5, 100), budget);
  ASSERT_OK(cache);
  EXPECT_EQ(cache->rows(0).capacity, 12);
  EXPECT_EQ(cache->rows(1).capacity, 100);
}

TEST(KvCache, ChargesExactlyWhatItEstimates) {
  MemoryBudget budget;
  const KvCacheSpec spec = small_spec(8, 5, 100);
  const auto cache = KvCache::create(spec, budget);
  ASSERT_OK(cache);
  EXPECT_EQ(spec.estimate().reserved, budget.footprint().reserved);
  EXPECT_EQ(spec.estimate().reserved_bytes(MemoryClass::kKvSliding), 12U * 2 * 2 * 4);
  EXPECT_EQ(spec.estimate().reserved_bytes(MemoryClass::kKvFull),
            100U * 2 * 2 * 2 * 2);  // two blocks of 50 slots, whole cache lines
}

TEST(KvCache, CutsLayersIntoBlocksThatWasteLessThanASlotEach) {
  for (std::int64_t capacity = 1; capacity <= 5000; ++capacity) {
    const BlockLayout layout(capacity, 24);
    ASSERT_LE(layout.block_slots, BlockLayout::kMostSlots);
    ASSERT_GE(layout.blocks * layout.block_slots, capacity);
    ASSERT_LT(layout.blocks * layout.block_slots - capacity, layout.block_slots);
    ASSERT_LT(layout.blocks * layout.block_slots - capacity, layout.blocks);
  }
  EXPECT_EQ(BlockLayout(8192, 2048).block_slots, 64);
}

TEST(KvCache, AllocatesBlocksTogetherByEightMebibytes) {
  // 10,000 slots of 4 KiB: 157 blocks of 256 KiB, of which 32 are 8 MiB.
  const BlockLayout layout(10000, 4096);
  ASSERT_EQ(layout.groups, 4);
  EXPECT_EQ(layout.group_begin(0), 0);
  EXPECT_EQ(layout.group_begin(4), layout.blocks);
  for (std::int64_t g = 0; g < layout.groups; ++g) {
    EXPECT_GE((layout.group_begin(g + 1) - layout.group_begin(g)) * layout.block_bytes,
              BlockLayout::kGroupBytes);
  }
  EXPECT_EQ(BlockLayout(100, 4096).groups, 1);
}

TEST(KvCache, GivesEachSlotARowOfItsOwn) {
  MemoryBudget budget;
  const auto cache = KvCache::create(small_spec(100, 45, 300), budget);
  ASSERT_OK(cache);
  for (const std::int64_t index : {0, 1}) {
    const KvRows& kv = cache->rows(index);
    std::vector<std::byte*> rows;
    for (std::int64_t slot = 0; slot < kv.capacity; ++slot) {
      rows.push_back(kv.row(kv.keys, slot));
      rows.push_back(kv.row(kv.values, slot));
    }
    std::sort(rows.begin(), rows.end());
    for (std::size_t i = 1; i < rows.size(); ++i) ASSERT_GE(rows[i] - rows[i - 1], kv.slot_bytes());
  }
}

TEST(SharedBlock, IsGivenBackWithTheLastHoldOfItsGroup) {
  MemoryBudget budget;
  auto blocks = SharedBlock::allocate(budget, MemoryClass::kKvFull, 128, 3);
  ASSERT_OK(blocks);
  EXPECT_EQ(budget.footprint().total_reserved(), 384U);
  EXPECT_FALSE((*blocks)[1].is_shared());
  SharedBlock second = (*blocks)[1].share();
  EXPECT_TRUE(second.is_shared());
  EXPECT_EQ(second.data(), (*blocks)[1].data());
  blocks->clear();
  EXPECT_FALSE(second.is_shared());
  EXPECT_EQ(budget.footprint().total_reserved(), 384U);
  second = SharedBlock();
  EXPECT_EQ(budget.footprint().total_reserved(), 0U);
}

TEST(SharedBlock, ClaimsOnlyABlockThatNobodyHolds) {
  MemoryBudget budget;
  auto blocks = SharedBlock::allocate(budget, MemoryClass::kKvFull, 128, 3);
  ASSERT_OK(blocks);
  const SharedBlock& first = blocks->front();
  EXPECT_FALSE(first.claim(2));
  EXPECT_FALSE(first.claim(3));
  blocks->pop_back();
  const SharedBlock claimed = first.claim(2);
  ASSERT_TRUE(claimed);
  EXPECT_EQ(claimed.data(), first.data() + 256);
  EXPECT_FALSE(claimed.is_shared());
  EXPECT_FALSE(first.claim(2));
}

TEST(KvCache, RefusesABlockThatIsTooLongAndAFullContext) {
  MemoryBudget budget;
  auto cache = KvCache::create(small_spec(8, 5, 7), budget);
  ASSERT_OK(cache);
  EXPECT_EQ(cache->reserve(6).error().code(), StatusCode::kInvalidArgument);
  advance(*cache, 5);
  EXPECT_EQ(cache->reserve(3).error().code(), StatusCode::kResourceExhausted);
  ASSERT_OK(cache->reserve(2));
}

TEST(KvCache, TruncatesExactlyAsFarAsTheRingHoldsTheWindow) {
  MemoryBudget budget;
  // Capacity 8 + 5 - 1 = 12. After 30 rows positions 18 ... 29 are held.
  auto cache = KvCache::create(small_spec(8, 5, 100), budget);
  ASSERT_OK(cache);
  for (int i = 0; i < 6; ++i) advance(*cache, 5);
  // A query at 25 sees 18 ... 25; one at 24 would need 17.
  EXPECT_EQ(cache->truncate(24).error().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(cache->length(), 30);
  ASSERT_OK(cache->truncate(25));
  EXPECT_EQ(cache->length(), 25);
  // Running again over slots that hold later rows loses nothing more.
  advance(*cache, 5);
  ASSERT_OK(cache->truncate(25));
  advance(*cache, 5);
  advance(*cache, 1);
  EXPECT_EQ(cache->truncate(25).error().code(), StatusCode::kFailedPrecondition);
  ASSERT_OK(cache->truncate(26));
}

TEST(KvCache, AlwaysTruncatesToNothing) {
  MemoryBudget budget;
  auto cache = KvCache::create(small_spec(8, 5, 100), budget);
  ASSERT_OK(cache);
  for (int i = 0; i < 6; ++i) advance(*cache, 5);
  ASSERT_OK(cache->truncate(0));
  EXPECT_EQ(cache->length(), 0);
  EXPECT_EQ(cache->truncate(1).error().code(), StatusCode::kInvalidArgument);
}

TEST(KvCache, ReservedRowsThatAreNotCommittedCostNoHistory) {
  MemoryBudget budget;
  auto cache = KvCache::create(small_spec(8, 5, 100), budget);
  ASSERT_OK(cache);
  for (int i = 0; i < 6; ++i) advance(*cache, 5);
  ASSERT_OK(cache->reserve(5));
  cache->commit(1);
  EXPECT_EQ(cache->length(), 31);
  // The block wrote up to position 34, so 23 is the oldest row held.
  ASSERT_OK(cache->truncate(30));
  EXPECT_EQ(cache->truncate(29).error().code(), StatusCode::kFailedPrecondition);
}

TEST(KvCache, CountsTheRowsThatAQueryMaySeeAsLive) {
  MemoryBudget budget;
  auto cache = KvCache::create(small_spec(8, 5, 100), budget);
  ASSERT_OK(cache);
  advance(*cache, 5);
  EXPECT_EQ(cache->footprint().live_bytes(MemoryClass::kKvSliding), 5U * 2 * 2 * 4);
  for (int i = 0; i < 3; ++i) advance(*cache, 5);
  EXPECT_EQ(cache->footprint().live_bytes(MemoryClass::kKvSliding), 8U * 2 * 2 * 4);
  EXPECT_EQ(cache->footprint().live_bytes(MemoryClass::kKvFull), 20U * 2 * 4 * 2);
}

}  // namespace
}  // namespace kakeya::test
