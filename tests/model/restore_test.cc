// Evicted rows restored by the demo model's projections: against another implementation, and the
// promises that hold for every way of keeping rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "formats/safetensors_writer.h"
#include "formats/scratch_files.h"
#include "model/test_model.h"
#include "thorough.h"

namespace kakeya::test {
namespace {

const std::string kDemo = KAKEYA_DEMO_MODEL;

SessionOptions restoring(Evicted full, Evicted sliding, std::int64_t window = 32) {
  return {.context = 512,
          .max_rows = 64,
          .sink = 4,
          .window = window,
          .evicted_full = full,
          .evicted_sliding = sliding};
}

struct RestoreMode {
  const char* name;
  const char* projection;
  SessionOptions options;
};

std::vector<RestoreMode> restore_modes() {
  using enum Evicted;
  SessionOptions coded = restoring(kRestore, kDrop, 64);
  coded.kv_full = KvType::kInt8;
  coded.kv_codes = KvType::kInt8;
  return {{"context", "context", restoring(kRestore, kRestore)},
          {"aux", "aux", restoring(kRestore, kRestore)},
          {"aux, full layers exact", "aux", restoring(kKeep, kRestore)},
          {"aux, coded, sliding rows dropped", "aux", coded}};
}

// The demo model with its drafter and one of its projections, or that of a folder.
struct Restoring {
  Restoring(const std::string& projection_name, const BackendChoice& choice, Compute compute)
      : model(TestModel::load(kDemo, choice, compute)),
        drafter(model->drafter(kDemo + "/drafter")),
        projection(model->projection(projection_name.front() == '/'
                                         ? projection_name
                                         : kDemo + "/projections/" + projection_name)) {}

  std::unique_ptr<Timeline> timeline(const SessionOptions& options, std::int64_t logit_rows = 32) {
    return model->timeline(options, logit_rows, {projection.get(), drafter.get()});
  }
  std::vector<float> logits(const SessionOptions& options,
                            std::span<const TokenId> ids,
                            std::int64_t chunk) {
    return run(*timeline(options), ids, {}, chunk).logits;
  }

  std::unique_ptr<TestModel> model;
  std::unique_ptr<dflash::Drafter> drafter;
  std::unique_ptr<Projection> projection;
};

BackendChoice fastest(int num_threads = 1) {
  return {.name = "cpu", .num_threads = num_threads};
}

// The golden is of double precision (tools/golden_restore.py), whose plain logits are 9.4e-6 from
// those of models/demo/golden; f32 rows, sums and codes of some hundred restored rows add as much
// again a few times over. A wrong bound of the evicted set by one position is 1e-2 and more.
TEST(Restore, LogitsAreThoseOfAnotherImplementation) {
  using enum Evicted;
  const auto golden = SafetensorsFile::open(KAKEYA_TEST_DATA "/restore/golden.safetensors");
  ASSERT_OK(golden);
  const std::vector<TokenId> ids = golden_ids(*golden, "input_ids");
  const std::vector<TokenId> rows = golden_ids(*golden, "rows");
  struct Row {
    const char* name;
    const char* projection;
    SessionOptions options;
  };
  std::size_t unit = 0;
  for (const BackendChoice& choice : all_backends()) {
    if (in_plain_loops(choice)) continue;  // minutes; the other tests compare with it
    std::size_t combination = unit++;
    for (const Row& row : {Row{"context", "context", restoring(kRestore, kRestore)},
                           Row{"aux", "aux", restoring(kRestore, kRestore)},
                           Row{"aux_full", "aux", restoring(kRestore, kKeep)},
                           Row{"aux_sliding", "aux", restoring(kKeep, kRestore)}}) {
      if (!is_run(combination++, 2)) continue;
      Restoring demo(row.projection, choice, Compute::kF32);
      const std::vector<float> logits = demo.logits(row.options, ids, 32);
      const std::vector<float> expected = golden_floats(*golden, std::string(row.name) + ".logits");
      const auto vocab = static_cast<std::size_t>(demo.model->config().vocab_size);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto got =
            std::span(logits).subspan(static_cast<std::size_t>(rows[i]) * vocab, vocab);
        EXPECT_LT(max_abs_difference(got, std::span(expected).subspan(i * vocab, vocab)), 1e-4)
            << choice.label() << " " << row.name << " row " << rows[i];
      }
    }
  }
}

TEST(Restore, ChunksAndThreadsChangeNoBit) {
  const std::vector<TokenId> ids = random_ids(260, 1);
  for (const RestoreMode& mode : restore_modes()) {
    Restoring one(mode.projection, fastest(1), Compute::kFast);
    Restoring two(mode.projection, fastest(2), Compute::kFast);
    const std::vector<float> expected = one.logits(mode.options, ids, 1);
    for (const std::int64_t chunk : {5, 17, 32}) {
      EXPECT_EQ(two.logits(mode.options, ids, chunk), expected) << mode.name << ", " << chunk;
    }
  }
}

// Blocks of which a part is kept, as drafts are, until the rings have wrapped.
TEST(Restore, GoingBackIsExact) {
  for (const RestoreMode& mode : restore_modes()) {
    Restoring demo(mode.projection, fastest(2), Compute::kFast);
    const auto vocab = static_cast<std::size_t>(demo.model->config().vocab_size);
    const auto timeline = demo.timeline(mode.options, 16);
    std::vector<TokenId> tokens = random_ids(90, 8);
    const std::vector<float> last = draft_at_random(*timeline, tokens, 300, 16);
    tokens.pop_back();
    const std::vector<float> all = demo.logits(mode.options, tokens, 32);
    EXPECT_EQ(std::vector<float>(all.end() - static_cast<std::ptrdiff_t>(vocab), all.end()), last)
        << mode.name;
    // Forgetting everything and running it again gives the same once more.
    ASSERT_OK(timeline->truncate(static_cast<Position>(tokens.size())));
    timeline->forget();
    EXPECT_EQ(logits_behind(*timeline), last) << mode.name;
  }
}

// Short prompts evict nothing: they are exact, whatever the mode.
TEST(Restore, WhatFitsSinkAndWindowIsExact) {
  const std::vector<TokenId> ids = random_ids(36, 4);
  const SessionOptions exact{.context = 512, .max_rows = 64};
  Restoring demo("context", fastest(), Compute::kFast);
  EXPECT_EQ(demo.logits(restoring(Evicted::kRestore, Evicted::kRestore), ids, 32),
            demo.logits(exact, ids, 32));
  const std::vector<TokenId> longer = random_ids(37, 4);
  EXPECT_NE(demo.logits(restoring(Evicted::kRestore, Evicted::kRestore), longer, 32),
            demo.logits(exact, longer, 32));
}

// A code of 96 elements for keys and one for values, all layers together; full rows stay bounded.
TEST(Restore, ATokenTakesTheBytesOfItsCodes) {
  Restoring demo("aux", fastest(), Compute::kFast);
  const auto reserved = [&](std::int64_t context, MemoryClass memory_class) {
    SessionOptions options = restoring(Evicted::kRestore, Evicted::kRestore);
    options.context = context;
    return demo.timeline(options)->footprint().reserved_bytes(memory_class);
  };
  EXPECT_EQ(reserved(4096, MemoryClass::kCodes) - reserved(2048, MemoryClass::kCodes),
            2048U * 2 * 96 * 2);
  EXPECT_EQ(reserved(4096, MemoryClass::kKvFull), reserved(2048, MemoryClass::kKvFull));
}

// The demo's projection with its keys' encoder for values as well: as two codes or as one.
void write_equal_codes(const ScratchFolder& folder, bool one_code) {
  std::string config = read_file(kDemo + "/projections/aux/f_theta_config.json");
  if (one_code) config.insert(config.find('{') + 1, "\"codes\": \"one\", ");
  std::ofstream(folder.path("f_theta_config.json")) << config;
  const auto demo = SafetensorsFile::open(kDemo + "/projections/aux/model.safetensors").value();
  std::vector<SafetensorsLayout> layouts;
  std::vector<const TensorView*> sources;
  for (const TensorView& tensor : demo.tensors()) {
    std::string name(tensor.name);
    if (one_code && name == "encoder_v.weight") continue;
    sources.push_back(name == "encoder_v.weight" ? demo.find("encoder_k.weight") : &tensor);
    if (one_code && name == "encoder_k.weight") name = "encoder.weight";
    layouts.push_back({.name = name, .dtype = tensor.dtype, .shape = tensor.shape});
  }
  auto writer = SafetensorsWriter::create(folder.path("model.safetensors"), layouts, {}).value();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    ASSERT_OK(writer.write(i, {sources[i]->data, layouts[i].bytes()}));
  }
  ASSERT_OK(writer.commit());
}

// On every backend, however codes are stored; half the bytes.
TEST(Restore, OneCodeIsTwoEqualOnes) {
  const ScratchFolder two;
  const ScratchFolder one;
  write_equal_codes(two, false);
  write_equal_codes(one, true);
  const std::vector<TokenId> ids = random_ids(60, 6);
  SessionOptions int8 = restoring(Evicted::kRestore, Evicted::kDrop);
  int8.kv_codes = KvType::kInt8;
  std::size_t index = 0;
  for (const BackendChoice& choice : all_backends()) {
    ++index;
    for (const SessionOptions& options : {restoring(Evicted::kRestore, Evicted::kRestore), int8}) {
      if (!is_run(index++, 2)) continue;  // each backend one of them, in turn
      Restoring of_two(two.root(), choice, Compute::kFast);
      Restoring of_one(one.root(), choice, Compute::kFast);
      EXPECT_EQ(of_one.logits(options, ids, 32), of_two.logits(options, ids, 32)) << choice.label();
      const auto codes = [&](Restoring& restoring) {
        return restoring.timeline(options)->footprint().reserved_bytes(MemoryClass::kCodes);
      };
      EXPECT_EQ(2 * codes(of_one), codes(of_two));
    }
  }
}

// The format that a projection was made for is the default, and no more than that.
TEST(Restore, CodesAreStoredAsTheProjectionSays) {
  Restoring demo("aux", fastest(), Compute::kFast);
  ProjectionConfig config = demo.projection->config();
  const auto format = [&](KvType type) {
    SessionOptions options = restoring(Evicted::kRestore, Evicted::kRestore);
    options.kv_codes = type;
    const auto plan = plan_timeline(demo.model->config(), options, Compute::kFast, 16,
                                    {&config, &demo.drafter->config()});
    return plan->cache.layers[static_cast<std::size_t>(plan->cache.codes)].format;
  };
  EXPECT_EQ(format(KvType::kAuto), KvFormat::kBf16);
  config.code_format = KvFormat::kInt8;
  EXPECT_EQ(format(KvType::kAuto), KvFormat::kInt8);
  EXPECT_EQ(format(KvType::kF32), KvFormat::kF32);
}

TEST(Restore, WhatCannotBeRestoredIsRefusedInOneLine) {
  Restoring demo("aux", fastest(), Compute::kFast);
  const RestoringConfigs configs{&demo.projection->config(), &demo.drafter->config()};
  const auto message = [&](const SessionOptions& options, const RestoringConfigs& with) {
    const auto plan = plan_timeline(demo.model->config(), options, Compute::kFast, 16, with);
    return plan ? "accepted" : plan.error().message();
  };
  using enum Evicted;
  EXPECT_EQ(message(restoring(kRestore, kKeep), configs), "accepted");
  EXPECT_EQ(message(restoring(kRestore, kKeep), {}),
            "rows can be restored only with a projection; name its folder in "
            "EngineOptions::projection");
  EXPECT_EQ(message(restoring(kKeep, kRestore, 0), configs),
            "rows can be restored only behind a window; set SessionOptions::window");
  EXPECT_EQ(
      message(restoring(kKeep, kRestore, 15), configs),
      "SessionOptions::window must be 16 or more where rows are restored, as many as a draft is "
      "verified with, but is 15");
  SessionOptions options = restoring(kRestore, kKeep);
  options.kv_codes = KvType::kE8;
  EXPECT_EQ(message(options, configs),
            "the KV cache cannot be stored as e8: it takes heads of 8 to 512 elements, a power "
            "of two, but codes have 96 elements");
}

}  // namespace
}  // namespace kakeya::test
