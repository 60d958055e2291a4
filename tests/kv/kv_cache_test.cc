#include "kv/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"
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
      rows.push_back(kv.row(kv.keys, slot).address());
      rows.push_back(kv.row(kv.values, slot).address());
    }
    std::sort(rows.begin(), rows.end());
    for (std::size_t i = 1; i < rows.size(); ++i) ASSERT_GE(rows[i] - rows[i - 1], kv.slot_bytes());
  }
}

TEST(SharedBlock, IsGivenBackWithTheLastHoldOfItsGroup) {
  MemoryBudget budget;
  auto blocks = SharedBlock::allocate(budget, MemorySpace::host(), MemoryClass::kKvFull, 128, 3);
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
  auto blocks = SharedBlock::allocate(budget, MemorySpace::host(), MemoryClass::kKvFull, 128, 3);
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

// A cache with what its rows must hold: the number of the write that filled each position.
struct Checked {
  KvCache cache;
  std::vector<std::int64_t> written;  // by position, of committed rows
};

// Calls f(layer, address, bytes) for what layer by layer is stored of a position.
template <typename F>
void for_vectors(const KvCache& cache, Position position, F&& f) {
  for (const std::int64_t index : {0, 1, 2}) {
    const KvRows& kv = cache.rows(index);
    const auto bytes = static_cast<std::size_t>(kv.slot_bytes());
    if (kv.keys != nullptr) f(2 * index, kv.row(kv.keys, kv.slot(position)).address(), bytes);
    f(2 * index + 1, kv.row(kv.values, kv.slot(position)).address(), bytes);
  }
}

int pattern(std::int64_t layer, std::int64_t write) {
  return static_cast<int>((write * 7 + layer * 31) & 0xff);
}

void append_rows(Checked& c, std::int64_t rows, std::int64_t kept, std::int64_t& writes) {
  ASSERT_OK(c.cache.reserve(rows));
  for (std::int64_t r = 0; r < rows; ++r) {
    ++writes;
    for_vectors(c.cache, c.cache.length() + r,
                [&](std::int64_t layer, std::byte* to, std::size_t n) {
                  std::memset(to, pattern(layer, writes), n);
                });
    if (r < kept) c.written.push_back(writes);
  }
  c.cache.commit(kept);
}

// All that a query at the next position would see, in every layer.
void expect_intact(const Checked& c) {
  const Position length = c.cache.length();
  for (Position p = 0; p < length; ++p) {
    for_vectors(c.cache, p, [&](std::int64_t layer, const std::byte* at, std::size_t n) {
      const LayerCacheSpec& spec = c.cache.layer(layer / 2);
      const bool seen = spec.reach() == 0 || p < spec.sink || p > length - spec.reach();
      if (!seen) return;
      const int expected = pattern(layer, c.written[static_cast<std::size_t>(p)]);
      for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(std::to_integer<int>(at[i]), expected) << p;
    });
  }
}

KvCacheSpec forked_spec() {
  return {.layers = {{.num_kv_heads = 1, .head_dim = 8, .window = 70, .format = KvFormat::kF32},
                     {.num_kv_heads = 1, .head_dim = 8, .window = 0, .format = KvFormat::kBf16},
                     {.num_kv_heads = 1,
                      .head_dim = 8,
                      .window = 0,
                      .format = KvFormat::kInt8,
                      .one_vector = true,
                      .sink = 3,
                      .kept = 40}},
          .context = 400,
          .max_rows = 30};
}

// Caches are forked, written, rolled back, cleared and dropped at random: none ever sees what
// another wrote, and the ledger is what they hold.
TEST(KvCache, ForksNeverSeeOneAnother) {
  const KvCacheSpec spec = forked_spec();
  MemoryBudget budget;
  SequenceRng random(3);
  std::int64_t writes = 0;
  std::vector<Checked> caches;
  for (int step = 0; step < 3000; ++step) {
    if (caches.empty()) caches.push_back({KvCache::create(spec, budget).value(), {}});
    const std::size_t which = random.below(caches.size());
    Checked& c = caches[which];
    const std::uint64_t action = random.below(20);
    if (action < 12) {
      const std::int64_t room = spec.context - c.cache.length();
      const auto rows = std::min(static_cast<std::int64_t>(random.below(31)), room);
      const auto kept =
          static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(rows + 1)));
      append_rows(c, rows, random.below(2) == 0 ? rows : kept, writes);
    } else if (action < 15) {
      const auto back = static_cast<Position>(random.below(40));
      if (c.cache.truncate(std::max<Position>(1, c.cache.length() - back))) {
        c.written.resize(static_cast<std::size_t>(c.cache.length()));
      }
    } else if (action < 18 && caches.size() < 6) {
      const std::uint64_t before = budget.footprint().total_reserved();
      Checked copy{c.cache.fork(), c.written};
      ASSERT_EQ(budget.footprint().total_reserved(), before);
      caches.push_back(std::move(copy));
    } else if (action == 18 || c.cache.length() > 390) {
      c.cache.clear();
      c.written.clear();
    } else if (caches.size() > 2) {
      caches.erase(caches.begin() + static_cast<std::ptrdiff_t>(which));
    }
    for (const Checked& other : caches) expect_intact(other);
    if (testing::Test::HasFatalFailure()) return;
    if (caches.size() == 1) {
      ASSERT_EQ(caches.front().cache.footprint().reserved, budget.footprint().reserved);
    }
  }
  caches.clear();
  EXPECT_EQ(budget.footprint().total_reserved(), 0U);
}

// Each fork has a thread of its own; what forks leave is claimed by the others.
TEST(KvCache, ForksAreUsedFromSeveralThreads) {
  const KvCacheSpec spec = forked_spec();
  MemoryBudget budget;
  {
    Checked parent{KvCache::create(spec, budget).value(), {}};
    std::int64_t parent_writes = 0;
    for (int i = 0; i < 4; ++i) append_rows(parent, 30, 30, parent_writes);
    std::vector<Checked> caches;
    for (int i = 0; i < 4; ++i) caches.push_back({parent.cache.fork(), parent.written});
    caches.push_back(std::move(parent));
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < caches.size(); ++i) {
      threads.emplace_back([&, i] {
        std::int64_t writes = 1000 * static_cast<std::int64_t>(i + 1);
        for (int step = 0; step < 40 && caches[i].cache.length() + 7 <= spec.context; ++step) {
          append_rows(caches[i], 7, 1 + step % 7, writes);
          expect_intact(caches[i]);
          // The older one goes away while others read what both held.
          Checked next{caches[i].cache.fork(), caches[i].written};
          std::swap(caches[i].cache, next.cache);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Checked& c : caches) expect_intact(c);
  }
  EXPECT_EQ(budget.footprint().total_reserved(), 0U);
}

TEST(KvCache, ARefusedCopyChangesNothingAndIsOneLine) {
  const KvCacheSpec spec = small_spec(100, 45, 300);
  MemoryBudget exact(spec.estimate().total_reserved() + 1000);  // less than two copies
  auto cache = KvCache::create(spec, exact);
  ASSERT_OK(cache);
  auto parent = std::make_unique<KvCache>(std::move(*cache));
  advance(*parent, 40);
  auto fork = parent->fork();
  const auto before = exact.footprint().reserved;
  const Status refused = fork.reserve(30);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.error().message().find('\n'), std::string::npos);
  EXPECT_EQ(exact.footprint().reserved, before);
  EXPECT_EQ(fork.length(), 40);
  for (Position p = 0; p < 40; ++p) {
    const KvRows& kv = fork.rows(0);
    EXPECT_EQ(kv.row(kv.keys, p), parent->rows(0).row(parent->rows(0).keys, p));
  }
  // The parent gone, the blocks are the fork's own.
  parent.reset();
  ASSERT_OK(fork.reserve(30));
  EXPECT_EQ(exact.footprint().reserved, before);
}

}  // namespace
}  // namespace kakeya::test
