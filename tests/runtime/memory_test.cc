// Memory is what we say: the ledger against an allocator that counts, and decoding without
// allocation. This program replaces malloc and friends, so it stands alone.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "convert/gguf_model.h"
#include "convert/mlx_checkpoint.h"
#include "formats/scratch_files.h"
#include "model/test_model.h"
#include "runtime/allocation_hook.h"
#include "runtime/engine_impl.h"
#include "thorough.h"

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

// Each way to take memory without asking the ledger is seen, and its return too.
TEST(Memory, TheHookSeesWhatTheLedgerDoesNot) {
  constexpr std::int64_t kBytes = 1 << 20;
  const std::int64_t heap = heap_bytes.load();
  const std::int64_t anonymous = anonymous_bytes.load();
  const auto expect_heap = [&](void* data) {
    EXPECT_GE(heap_bytes.load() - heap, kBytes);
    EXPECT_LT(heap_bytes.load() - heap, kBytes + (64 << 10));
    std::free(data);
    EXPECT_EQ(heap_bytes.load(), heap);
  };
  expect_heap(std::malloc(kBytes));
  expect_heap(std::calloc(kBytes / 16, 16));
  expect_heap(std::realloc(std::malloc(16), kBytes));
  expect_heap(std::aligned_alloc(64, kBytes));
  expect_heap(::memalign(64, kBytes));
  {
    const std::vector<char> vector(kBytes);
    EXPECT_GE(heap_bytes.load() - heap, kBytes);
  }
  EXPECT_EQ(heap_bytes.load(), heap);
  void* mapped =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_EQ(anonymous_bytes.load() - anonymous, kBytes);
  ::munmap(mapped, kBytes);
  EXPECT_EQ(anonymous_bytes.load(), anonymous);
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
                                          [&](const TokenEvent&) {
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
  for (const char* draft : {"auto", "ngram", KAKEYA_DEMO_MODEL "/drafter"}) {
    EngineOptions options = demo_options(Compute::kFast);
    options.draft.source = draft;
    const auto engine = Engine::open(options).value();
    const auto session = engine->create_session().value();
    ASSERT_OK(session->append(std::vector<TokenId>{2, 105, 3833, 107, 681}));
    for (const std::int64_t length : {kAutoDraftLength, std::int64_t{1}, std::int64_t{15}}) {
      std::int64_t first = 0;
      std::int64_t last = 0;
      const GenerateOptions generate{.max_tokens = 200,
                                     .sampling = {.temperature = 0.2F, .top_p = 0.9F, .seed = 3},
                                     .draft_length = length,
                                     .ignore_model_stop_ids = true};
      const auto result = session->generate(generate, [&](const TokenEvent&) {
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

TEST(Memory, DecodingFromAnUnfilteredVocabularyAllocatesNothing) {
  const auto engine = Engine::open(demo_options(Compute::kFast)).value();
  const auto session = engine->create_session().value();
  ASSERT_OK(session->append(std::vector<TokenId>{2, 105, 3833, 107, 681}));
  std::int64_t first = 0;
  std::int64_t last = 0;
  const GenerateOptions options{.max_tokens = 300,
                                .sampling = {.temperature = 1.3F, .top_p = 0.99F},
                                .ignore_model_stop_ids = true};
  ASSERT_OK(session->generate(options, [&](const TokenEvent&) {
    last = allocations.load();
    if (first == 0) first = last;
    return true;
  }));
  EXPECT_EQ(last - first, 0);
}

// Ways to keep keys and values.
std::vector<EngineOptions> kv_modes() {
  std::vector<EngineOptions> modes = {demo_options(Compute::kFast), demo_options(Compute::kF32)};
  for (const KvType type : {KvType::kInt8, KvType::kE8}) {
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
  modes.push_back(demo_options(Compute::kFast));
  modes.back().session.kv_full = calibrated_kv(4, 3);
  for (const char* features : {"context", "aux"}) {
    EngineOptions options = demo_options(Compute::kFast);
    options.projection = std::string(KAKEYA_DEMO_MODEL) + "/projections/" + features;
    options.session.window = 64;
    options.session.evicted_full = Evicted::kRestore;
    options.session.evicted_sliding = Evicted::kRestore;
    modes.push_back(options);
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
      const auto engine = EngineImpl::open(options).value();
      const auto weights = static_cast<std::uint64_t>(buffer_bytes.load() - before);
      EXPECT_EQ(engine->footprint().total_reserved(), weights);
      const auto session = engine->create_session().value();
      const auto total = static_cast<std::uint64_t>(buffer_bytes.load() - before);
      EXPECT_EQ(engine->footprint().total_reserved(), total);
      EXPECT_EQ(engine->footprint().reserved, estimate.reserved);
      const std::uint64_t of_session = session->footprint().total_reserved();
      // All sessions share the workspace, and the tables of calibrated codes.
      const std::uint64_t tables = engine->footprint().reserved_bytes(MemoryClass::kCodes) -
                                   session->footprint().reserved_bytes(MemoryClass::kCodes);
      EXPECT_EQ(tables > 0, is_calibrated(options.session.kv_full));
      EXPECT_EQ(of_session + engine->workspace().footprint().total_reserved() + tables,
                total - weights);
      const auto another = engine->create_session().value();
      EXPECT_EQ(engine->footprint().total_reserved(), total + of_session);
      EXPECT_EQ(buffer_bytes.load() - before, static_cast<std::int64_t>(total + of_session));
      ASSERT_OK(session->append(std::vector<TokenId>(300, 17)));
      ASSERT_OK(session->generate({.max_tokens = 30}));
      EXPECT_EQ(engine->footprint().total_reserved(), total + of_session);
    }
    EXPECT_EQ(buffer_bytes.load(), before);
  }
}

// Steps of many requests at once allocate nothing once all of them decode, and 64 sessions are in
// the ledger with the one workspace that they share.
TEST(Memory, StepsOfASchedulerAllocateNothing) {
  EngineOptions options = demo_options(Compute::kFast);
  options.session.context = 2048;
  const std::int64_t before = buffer_bytes.load();
  {
    const auto engine = Engine::open(options).value();
    const auto scheduler = engine->create_scheduler({}).value();
    std::int64_t tokens = 0;
    for (TokenId i = 0; i < 64; ++i) {
      Request request;
      request.prompt = std::vector<TokenId>(static_cast<std::size_t>(10 + i), 17 + i);
      // None ends meanwhile, however long its blocks are.
      request.generate = {.max_tokens = 1900,
                          .sampling = {.temperature = i % 2 == 0 ? 0.0F : 1.0F},
                          .draft_length = i % 3 == 0 ? 0 : kAutoDraftLength,
                          .ignore_model_stop_ids = true};
      request.on_token = [&](const TokenEvent&) {
        ++tokens;
        return true;
      };
      ASSERT_OK(scheduler->add(std::move(request)));
    }
    while (scheduler->statistics().prompt_rows < 64 * 10 + 63 * 32) {
      ASSERT_TRUE(scheduler->step().value());
    }
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(scheduler->step().value());
    EXPECT_EQ(scheduler->statistics().running, 64);
    EXPECT_EQ(engine->footprint().total_reserved(),
              static_cast<std::uint64_t>(buffer_bytes.load() - before));
    const std::int64_t tokens_before = tokens;
    const std::int64_t allocated = allocations.load();
    for (int i = 0; i < 30; ++i) ASSERT_TRUE(scheduler->step().value());
    EXPECT_EQ(allocations.load(), allocated);
    EXPECT_GE(tokens - tokens_before, 30 * 64);
  }
  EXPECT_EQ(buffer_bytes.load(), before);
}

// The demo model in MLX's affine format and as GGUF, of 4 bits a weight.
class QuantisedDemo {
 public:
  QuantisedDemo() {
    MemoryBudget budget;
    quantize_to_mlx(KAKEYA_DEMO_MODEL, affine(), {}, {.threads = 1}, budget).value();
    const GgufFileType type = find_gguf_file_type("q4_k_m").value();
    convert_to_gguf(KAKEYA_DEMO_MODEL, gguf(), type, {.threads = 1}, budget).value();
  }
  std::string affine() const { return folder_.path("affine"); }
  std::string gguf() const { return folder_.path("q4_k_m.gguf"); }

 private:
  ScratchFolder folder_;
};

// Networks of each kind: quantised weights, experts, per-layer inputs, Qwen3, and their drafts.
std::vector<EngineOptions> networks(const QuantisedDemo& quantised) {
  std::vector<EngineOptions> found;
  for (const std::string& model : {quantised.affine(), quantised.gguf()}) {
    EngineOptions options = demo_options(Compute::kFast);
    options.model_dir = model;
    options.draft.source = KAKEYA_DEMO_MODEL "/drafter";
    found.push_back(options);
  }
  for (const char* network :
       {"qwen3-tied", "qwen3-untied", "gemma4-e", "gemma4-e4", "gemma4-moe", "gemma4-dense"}) {
    EngineOptions options = demo_options(Compute::kFast);
    options.model_dir = network_dir(network);
    options.draft.source = "ngram";
    options.session = {.context = 256, .max_rows = 16};
    found.push_back(options);
    options.session.kv_full = KvType::kInt8;
    options.session.kv_sliding = KvType::kInt8;
    found.push_back(options);
  }
  return found;
}

// Memory that is not in the ledger: texts and lists, never rows of numbers. An engine's is the
// tokenizer and template (weighed apart), names and views of tensors, its configuration and the
// layers' tables; a session's is tables of blocks, and what is kept of each token and round. They
// were measured at up to 150 KiB and 27 KiB here.
constexpr std::int64_t kEngineBytes = 256 << 10;
constexpr std::int64_t kSessionBytes = 48 << 10;

// Live bytes that are not a buffer's.
std::int64_t uncharged_bytes() {
  return heap_bytes.load() + anonymous_bytes.load();
}

std::int64_t text_bytes(const std::string& model) {
  const std::int64_t before = uncharged_bytes();
  const ModelText text = ModelText::load(model).value();
  return uncharged_bytes() - before;
}

// Within a tenth: the rest is normalizers, patterns and what the allocator adds.
TEST(Memory, ATokenizerSaysWhatItTakes) {
  text_bytes(KAKEYA_DEMO_MODEL);  // what libraries keep from their first use on
  const std::int64_t before = uncharged_bytes();
  const Tokenizer tokenizer = Tokenizer::load(KAKEYA_DEMO_MODEL "/tokenizer.json").value();
  const auto taken = static_cast<double>(uncharged_bytes() - before);
  EXPECT_GT(static_cast<double>(tokenizer.memory_bytes()), 0.9 * taken);
  EXPECT_LE(static_cast<double>(tokenizer.memory_bytes()), taken);
}

TEST(Memory, WhatTheLedgerLeavesOutIsBounded) {
  const QuantisedDemo quantised;
  std::vector<EngineOptions> all = kv_modes();
  for (const EngineOptions& each : networks(quantised)) all.push_back(each);
  text_bytes(KAKEYA_DEMO_MODEL);  // what libraries keep from their first use on
  for (const EngineOptions& options : all) {
    SCOPED_TRACE(options.model_dir);
    const std::int64_t text = text_bytes(options.model_dir);
    const std::int64_t before = uncharged_bytes();
    const std::int64_t buffers = buffer_bytes.load();
    const std::int64_t files = file_bytes.load();
    {
      const auto engine = EngineImpl::open(options).value();
      EXPECT_LT(uncharged_bytes() - before - text, kEngineBytes);
      // Only per-layer inputs are read where they are mapped.
      if (engine->config().hidden_size_per_layer_input == 0) {
        EXPECT_EQ(file_bytes.load(), files);
      }
      const std::int64_t opened = uncharged_bytes();
      const auto session = engine->create_session().value();
      EXPECT_LT(uncharged_bytes() - opened, kSessionBytes);
      ASSERT_OK(session->append(std::vector<TokenId>(100, 17)));
      ASSERT_OK(session->generate({.max_tokens = 30, .ignore_model_stop_ids = true}));
      EXPECT_LT(uncharged_bytes() - opened, kSessionBytes);
      EXPECT_EQ(engine->footprint().total_reserved(),
                static_cast<std::uint64_t>(buffer_bytes.load() - buffers));
    }
    EXPECT_EQ(buffer_bytes.load(), buffers);
    EXPECT_EQ(file_bytes.load(), files);
    EXPECT_LT(uncharged_bytes() - before, 16 << 10);  // nothing stays but what libraries keep
  }
}

TEST(Memory, NoNetworkAllocatesWhileDecoding) {
  const QuantisedDemo quantised;
  for (const EngineOptions& options : networks(quantised)) {
    const auto engine = Engine::open(options).value();
    const auto session = engine->create_session().value();
    ASSERT_OK(session->append(std::vector<TokenId>(100, 17)));
    for (const std::int64_t draft_length : {0, 3}) {
      std::int64_t first = 0;
      std::int64_t last = 0;
      ASSERT_OK(session->generate(
          {.max_tokens = 40, .draft_length = draft_length, .ignore_model_stop_ids = true},
          [&](const TokenEvent&) {
            last = allocations.load();
            if (first == 0) first = last;
            return true;
          }));
      EXPECT_EQ(last - first, 0) << options.model_dir << ", drafts of " << draft_length;
    }
  }
}

// Rows in every format, dropped and restored ones too, with and without drafts.
TEST(Memory, DecodingOverCodedRowsAllocatesNothing) {
  for (const EngineOptions& options : kv_modes()) {
    const auto engine = Engine::open(options).value();
    const auto session = engine->create_session().value();
    ASSERT_OK(session->append(std::vector<TokenId>(200, 17)));
    for (const std::int64_t draft_length : {0, 7}) {
      std::int64_t first = 0;
      std::int64_t last = 0;
      ASSERT_OK(session->generate(
          {.max_tokens = 60, .draft_length = draft_length, .ignore_model_stop_ids = true},
          [&](const TokenEvent&) {
            last = allocations.load();
            if (first == 0) first = last;
            return true;
          }));
      EXPECT_EQ(last - first, 0) << "rows of kind " << static_cast<int>(options.session.kv_full)
                                 << ", drafts of " << draft_length;
    }
  }
}

// With what a prompt cache holds, while it is filled and gives way; and a session that keeps its
// rows for others, behind its first token, allocates nothing while it decodes.
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
    engine->create_session().value();  // makes the workspace, which stays
    const std::uint64_t weights = engine->footprint().total_reserved();
    for (TokenId i = 0; i < 12; ++i) {
      const auto session = engine->create_session().value();
      ASSERT_OK(session->sync(std::vector<TokenId>(300 + 20 * (i % 3), 17 + i % 7)));
      std::int64_t tokens = 0;
      std::int64_t second = 0;
      std::int64_t last = 0;
      ASSERT_OK(session->generate({.max_tokens = 30, .ignore_model_stop_ids = true},
                                  [&](const TokenEvent&) {
                                    last = allocations.load();
                                    if (++tokens == 2) second = last;
                                    return true;
                                  }));
      EXPECT_EQ(last - second, 0);
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

// Tokens of entries and what finds them are in the ledger too: over many entries of a long text,
// what it leaves out stays within what a session may take.
TEST(Memory, TheLedgerCountsTheListsOfThePromptCache) {
  EngineOptions options = demo_options(Compute::kFast);
  options.session.context = 8192;
  options.draft.source = "none";
  options.prompt_cache_bytes = std::uint64_t{1} << 30;
  const std::int64_t before = buffer_bytes.load();
  {
    const auto engine = EngineImpl::open(options).value();
    const auto session = engine->create_session().value();
    const auto run_turns = [&](int turns) {
      for (int i = 0; i < turns; ++i) {
        ASSERT_OK(session->append(std::vector<TokenId>(30, 17 + i)));
        ASSERT_OK(session->generate({.max_tokens = 20, .ignore_model_stop_ids = true}));
      }
    };
    run_turns(5);
    const std::int64_t entries = engine->prompt_cache()->num_entries();
    const std::int64_t uncharged = uncharged_bytes();
    run_turns(75);
    EXPECT_EQ(engine->prompt_cache()->num_entries() - entries, 2 * 75);
    EXPECT_LT(uncharged_bytes() - uncharged, kSessionBytes);
    EXPECT_EQ(engine->footprint().total_reserved(),
              static_cast<std::uint64_t>(buffer_bytes.load() - before));
    EXPECT_EQ(engine->prompt_cache()->bytes(),
              engine->footprint().reserved_bytes(MemoryClass::kPromptCache));
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
        [&](const TokenEvent&) {
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
      const auto result = session->generate(turn, [&](const TokenEvent&) {
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
  const int turns = by_form(12, 36);
  generate(turns);
  EXPECT_EQ(engine->footprint().total_reserved(), reserved);
  // Ids are kept. The rest are pages that the system had taken away and brings back: 300 kB were
  // seen. The rows of full layers alone would be 512 bytes a token, 6 MB in all.
  EXPECT_LT(resident_bytes() - resident, turns * 1000 * 4 + (1 << 20));
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
  const std::int64_t uncharged = uncharged_bytes();
  const auto fork = session->fork().value();
  EXPECT_EQ(engine->footprint().total_reserved(), ledger);
  EXPECT_EQ(buffer_bytes.load(), buffers);
  EXPECT_LT(uncharged_bytes() - uncharged, kSessionBytes + 10010 * 4);
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
