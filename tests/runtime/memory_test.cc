// Memory is what we say: the ledger against an allocator that counts, and decoding without
// allocation. This program replaces malloc and friends, so it stands alone.
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "model/test_model.h"
#include "runtime/engine_impl.h"

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* data, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void __libc_free(void* data);
}

namespace {

// Every allocation of the process, and the live bytes of those with the alignment of a Buffer.
std::atomic<std::int64_t> allocations{0};
std::atomic<std::int64_t> buffer_bytes{0};

// Buffers come from posix_memalign; their size is kept in a side table because free() does not know
// it. Few buffers live at once.
struct Entry {
  std::atomic<void*> data{nullptr};
  std::atomic<std::size_t> size{0};
};
Entry entries[4096];

void remember(void* data, std::size_t size) {
  for (Entry& entry : entries) {
    void* empty = nullptr;
    if (!entry.data.compare_exchange_strong(empty, data)) continue;
    entry.size = size;
    buffer_bytes += static_cast<std::int64_t>(size);
    return;
  }
  std::abort();
}

void forget(void* data) {
  if (data == nullptr || buffer_bytes.load() == 0) return;
  for (Entry& entry : entries) {
    if (entry.data.load() != data) continue;
    buffer_bytes -= static_cast<std::int64_t>(entry.size.load());
    entry.data = nullptr;
    return;
  }
}

}  // namespace

extern "C" {
void* malloc(std::size_t size) {
  ++allocations;
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  ++allocations;
  return __libc_calloc(count, size);
}
void* realloc(void* data, std::size_t size) {
  ++allocations;
  return __libc_realloc(data, size);
}
int posix_memalign(void** data, std::size_t alignment, std::size_t size) {
  ++allocations;
  *data = __libc_memalign(alignment, size);
  if (*data == nullptr) return ENOMEM;
  remember(*data, size);
  return 0;
}
void free(void* data) {
  forget(data);
  __libc_free(data);
}
}

namespace kakeya::test {
namespace {

EngineOptions demo_options(Compute compute) {
  return {.model_dir = KAKEYA_DEMO_MODEL,
          .compute = compute,
          .num_threads = 2,
          .pin_threads = false,
          .session = {.context = 2048, .max_rows = 64}};
}

TEST(Memory, TheHookSeesBuffers) {
  MemoryBudget budget;
  const std::int64_t before = buffer_bytes.load();
  auto buffer = budget.allocate(MemoryClass::kWeights, 1000);
  ASSERT_OK(buffer);
  EXPECT_EQ(buffer_bytes.load() - before, 1024);
  *buffer = Buffer();
  EXPECT_EQ(buffer_bytes.load(), before);
}

TEST(Memory, DecodingAThousandTokensAllocatesNothing) {
  for (const Compute compute : {Compute::kFast, Compute::kF32}) {
    const auto engine = Engine::open(demo_options(compute)).value();
    const auto session = engine->create_session().value();
    ASSERT_OK(session->append(std::vector<TokenId>{2, 105, 3833, 107, 681}));
    std::int64_t first = 0;
    std::int64_t last = 0;
    const auto result = session->generate({.max_tokens = 1001,
                                           .sampling = {.temperature = 0.9F,
                                                        .top_k = 40,
                                                        .top_p = 0.9F,
                                                        .min_p = 0.01F,
                                                        .repetition_penalty = 1.1F,
                                                        .presence_penalty = 0.1F,
                                                        .logit_bias = {{17, 1.0F}},
                                                        .seed = 3},
                                           .ignore_model_stop_ids = true},
                                          [&](TokenId) {
                                            last = allocations.load();
                                            if (first == 0) first = last;
                                            return true;
                                          });
    ASSERT_OK(result);
    ASSERT_EQ(result->ids.size(), 1001U);
    EXPECT_EQ(last - first, 0);
  }
}

TEST(Memory, DraftingAllocatesNothingWhateverDraftsAndHowever) {
  for (const char* draft : {"auto", "ngram", "chain"}) {
    EngineOptions options = demo_options(Compute::kFast);
    options.draft.source = draft;
    const auto engine = Engine::open(options).value();
    const auto session = engine->create_session().value();
    ASSERT_OK(session->append(std::vector<TokenId>{2, 105, 3833, 107, 681}));
    for (const std::int64_t length : {kAutoDraftLength, std::int64_t{1}, std::int64_t{15}}) {
      for (const AcceptRule rule : {AcceptRule::kSampleMatch, AcceptRule::kRejection}) {
        std::int64_t first = 0;
        std::int64_t last = 0;
        const GenerateOptions generate{.max_tokens = 200,
                                       .sampling = {.temperature = 0.9F, .top_p = 0.9F, .seed = 3},
                                       .draft_length = length,
                                       .accept = rule,
                                       .ignore_model_stop_ids = true};
        const auto result = session->generate(generate, [&](TokenId) {
          last = allocations.load();
          if (first == 0) first = last;
          return true;
        });
        ASSERT_OK(result);
        ASSERT_EQ(result->ids.size(), 200U);
        EXPECT_TRUE(length < 0 || result->drafted > 0);
        EXPECT_EQ(last - first, 0) << draft << ", drafts of " << length;
      }
    }
  }
}

TEST(Memory, DecodingFromAnUnfilteredVocabularyAllocatesNothing) {
  const auto engine = Engine::open(demo_options(Compute::kFast)).value();
  const auto session = engine->create_session().value();
  ASSERT_OK(session->append(std::vector<TokenId>{2, 105, 3833, 107, 681}));
  std::int64_t first = 0;
  std::int64_t last = 0;
  const GenerateOptions options{.max_tokens = 300,
                                .sampling = {.temperature = 1.3F, .top_p = 0.99F},
                                .ignore_model_stop_ids = true};
  ASSERT_OK(session->generate(options, [&](TokenId) {
    last = allocations.load();
    if (first == 0) first = last;
    return true;
  }));
  EXPECT_EQ(last - first, 0);
}

// Ways to keep keys and values.
std::vector<EngineOptions> kv_modes() {
  std::vector<EngineOptions> modes = {demo_options(Compute::kFast), demo_options(Compute::kF32)};
  for (const KvType type : {KvType::kInt8, KvType::kInt4, KvType::kD4, KvType::kE8}) {
    EngineOptions options = demo_options(Compute::kFast);
    options.session.kv_full = type;
    options.session.kv_sliding = type;
    options.session.kv_drafter = type;
    modes.push_back(options);
    options.session.window = 64;
    options.session.evicted_full = Evicted::kDrop;
    options.session.evicted_sliding = Evicted::kDrop;
    modes.push_back(options);
  }
  EngineOptions pairs = demo_options(Compute::kFast);
  pairs.session.kv_pairs = true;
  modes.push_back(pairs);
  for (const char* features : {"token", "context", "aux"}) {
    EngineOptions options = demo_options(Compute::kFast);
    options.projection = std::string(KAKEYA_DEMO_MODEL) + "/projections/" + features;
    options.session.window = 64;
    options.session.evicted_full = Evicted::kRestore;
    options.session.evicted_sliding = Evicted::kRestore;
    modes.push_back(options);
    options.session.restore_blend = 0.5F;
    options.draft.source = "none";  // the drafter is loaded for its features alone
    modes.push_back(options);
  }
  return modes;
}

TEST(Memory, TheLedgerIsWhatTheAllocatorGaveAndWhatWasEstimated) {
  for (const EngineOptions& options : kv_modes()) {
    const std::int64_t before = buffer_bytes.load();
    const Footprint estimate = Engine::estimate(options).value();
    ASSERT_EQ(buffer_bytes.load(), before);
    {
      const auto engine = Engine::open(options).value();
      const std::int64_t weights = buffer_bytes.load() - before;
      EXPECT_EQ(engine->footprint().total_reserved(), static_cast<std::uint64_t>(weights));
      const auto session = engine->create_session().value();
      const auto total = static_cast<std::uint64_t>(buffer_bytes.load() - before);
      EXPECT_EQ(engine->footprint().total_reserved(), total);
      EXPECT_EQ(engine->footprint().reserved, estimate.reserved);
      EXPECT_EQ(session->footprint().total_reserved(), total - static_cast<std::uint64_t>(weights));
      ASSERT_OK(session->append(std::vector<TokenId>(300, 17)));
      ASSERT_OK(session->generate({.max_tokens = 30}));
      EXPECT_EQ(engine->footprint().total_reserved(), total);
    }
    EXPECT_EQ(buffer_bytes.load(), before);
  }
}

// With what a prompt cache holds, while it is filled and gives way; and a session that keeps its
// rows for others allocates nothing while it decodes.
TEST(Memory, TheLedgerCountsThePromptCache) {
  EngineOptions options = demo_options(Compute::kFast);
  options.prompt_cache_bytes = 4 << 20;
  const std::int64_t before = buffer_bytes.load();
  {
    const auto engine = Engine::open(options).value();
    const auto expect_true_ledger = [&] {
      EXPECT_EQ(engine->footprint().total_reserved(),
                static_cast<std::uint64_t>(buffer_bytes.load() - before));
    };
    const std::uint64_t weights = engine->footprint().total_reserved();
    for (TokenId i = 0; i < 12; ++i) {
      const auto session = engine->create_session().value();
      ASSERT_OK(session->sync(std::vector<TokenId>(300 + 20 * (i % 3), 17 + i % 7)));
      std::int64_t first = 0;
      std::int64_t last = 0;
      ASSERT_OK(session->generate({.max_tokens = 30, .ignore_model_stop_ids = true}, [&](TokenId) {
        last = allocations.load();
        if (first == 0) first = last;
        return true;
      }));
      EXPECT_EQ(last - first, 0);
      expect_true_ledger();
    }
    // No session is left: the rest is the cache's.
    expect_true_ledger();
    const std::uint64_t cached = engine->footprint().reserved_bytes(MemoryClass::kPromptCache);
    EXPECT_GT(cached, 0U);
    EXPECT_LE(cached, options.prompt_cache_bytes);
    EXPECT_EQ(engine->footprint().total_reserved(), weights + cached);
  }
  EXPECT_EQ(buffer_bytes.load(), before);
}

// Resident pages of the process, in bytes.
std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t size = 0;
  std::int64_t resident = 0;
  file >> size >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

TEST(Memory, RestoringRowsAllocatesNothingWhileDecoding) {
  EngineOptions options = demo_options(Compute::kFast);
  options.session.window = 64;
  options.session.evicted_full = Evicted::kRestore;
  options.session.evicted_sliding = Evicted::kRestore;
  const auto engine = Engine::open(options).value();
  const auto session = engine->create_session().value();
  ASSERT_OK(session->append(std::vector<TokenId>(200, 17)));
  for (const std::int64_t draft_length : {0, 7}) {
    std::int64_t first = 0;
    std::int64_t last = 0;
    ASSERT_OK(session->generate(
        {.max_tokens = 100, .draft_length = draft_length, .ignore_model_stop_ids = true},
        [&](TokenId) {
          last = allocations.load();
          if (first == 0) first = last;
          return true;
        }));
    EXPECT_EQ(last - first, 0);
  }
}

// 20,000 tokens past the model's limit of positions, in turns that do not keep their results. The
// tokens themselves, 4 bytes each, are all that grows.
TEST(Memory, ASessionThatDropsRowsStaysAsItIsForever) {
  EngineOptions options = demo_options(Compute::kFast);
  options.session = {.context = 60000, .max_rows = 64, .window = 64};
  options.session.evicted_full = Evicted::kDrop;
  options.session.evicted_sliding = Evicted::kDrop;
  const auto engine = Engine::open(options).value();
  const auto session = engine->create_session().value();
  ASSERT_OK(session->append(std::vector<TokenId>{2, 105, 3833, 107, 681}));
  const GenerateOptions turn{.max_tokens = 1000,
                             .sampling = {.temperature = 1.0F, .seed = 5},
                             .ignore_model_stop_ids = true};
  const auto generate = [&](int turns) {
    for (int i = 0; i < turns; ++i) {
      std::int64_t first = 0;
      std::int64_t last = 0;
      const auto result = session->generate(turn, [&](TokenId) {
        last = allocations.load();
        if (first == 0) first = last;
        return true;
      });
      ASSERT_OK(result);
      ASSERT_EQ(result->ids.size(), 1000U);
      ASSERT_EQ(last - first, 0);
    }
  };
  generate(4);  // rings have wrapped and every page was touched
  const std::uint64_t reserved = engine->footprint().total_reserved();
  const std::int64_t resident = resident_bytes();
  generate(36);
  EXPECT_EQ(engine->footprint().total_reserved(), reserved);
  EXPECT_LT(resident_bytes() - resident, 36000 * 4 + (256 << 10));
}

// The bookkeeping of a fork, tokens and tables of blocks, is not charged; this is all of it.
TEST(Memory, AForkOfALongSessionCostsNextToNothingUntilItDiverges) {
  EngineOptions options = demo_options(Compute::kFast);
  options.session.context = 12000;
  const auto engine = Engine::open(options).value();
  const auto session = engine->create_session().value();
  ASSERT_OK(session->append(std::vector<TokenId>(10000, 17)));
  ASSERT_OK(session->generate({.max_tokens = 10, .ignore_model_stop_ids = true}));
  const std::uint64_t ledger = engine->footprint().total_reserved();
  const std::int64_t buffers = buffer_bytes.load();
  const auto heap = static_cast<std::int64_t>(::mallinfo2().uordblks);
  const auto fork = session->fork().value();
  EXPECT_EQ(engine->footprint().total_reserved(), ledger);
  EXPECT_EQ(buffer_bytes.load(), buffers);
  EXPECT_LT(static_cast<std::int64_t>(::mallinfo2().uordblks) - heap, 1 << 20);
  EXPECT_GT(fork->footprint().total_reserved(), 1U << 20);  // what it shares is counted
  const GenerateOptions more{.max_tokens = 100, .ignore_model_stop_ids = true};
  for (Session* each : {fork.get(), session.get()}) {
    ASSERT_OK(each->generate(more));
    EXPECT_EQ(engine->footprint().total_reserved() - ledger,
              static_cast<std::uint64_t>(buffer_bytes.load() - buffers));
  }
  EXPECT_GT(engine->footprint().total_reserved(), ledger);
  // Far less than a second session: a few blocks, and what a pass needs.
  const Footprint alone = session->footprint();
  EXPECT_LT(engine->footprint().reserved_bytes(MemoryClass::kKvFull),
            alone.reserved_bytes(MemoryClass::kKvFull) * 11 / 10);
}

TEST(Memory, ABudgetThatIsTooSmallRefusesBeforeLoadingWithTheItemisedNeed) {
  EngineOptions options = demo_options(Compute::kFast);
  options.memory_limit = 1 << 20;
  bool loaded = false;
  options.on_progress = [&](std::uint64_t, std::uint64_t) { loaded = true; };
  const auto engine = Engine::open(options);
  ASSERT_FALSE(engine.has_value());
  EXPECT_EQ(engine.error().code(), StatusCode::kResourceExhausted);
  for (const char* item : {"1.0 MiB", "weights", "kv_sliding", "kv_full", "activations"}) {
    EXPECT_NE(engine.error().message().find(item), std::string::npos) << item;
  }
  EXPECT_FALSE(loaded);
}

TEST(Memory, ABudgetOfExactlyTheEstimateIsEnoughForOneSessionAndNotForTwo) {
  EngineOptions options = demo_options(Compute::kFast);
  options.memory_limit = Engine::estimate(options)->total_reserved();
  const auto engine = Engine::open(options);
  ASSERT_OK(engine);
  const auto first = (*engine)->create_session();
  ASSERT_OK(first);
  const auto second = (*engine)->create_session();
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ((*engine)->footprint().total_reserved(), options.memory_limit);
}

}  // namespace
}  // namespace kakeya::test
