// One pass over rows of many sequences gives each of them the bits of a pass of its own: chunks of
// prompts beside plain steps and blocks, whatever their lengths, their ways to keep rows, and where
// they stand.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "decode/pass.h"
#include "model/test_model.h"
#include "thorough.h"

namespace kakeya {
namespace {

using test::BackendChoice;
using test::network_dir;
using test::random_ids;
using test::TestModel;

constexpr std::int64_t kContext = 160;
constexpr std::int64_t kMaxRows = 16;  // of a part
constexpr std::int64_t kMaxParts = 8;  // of a pass

// One of the ways in which sessions keep keys and values.
SessionOptions session_options(std::size_t way) {
  SessionOptions options{.context = kContext, .max_rows = kMaxRows};
  const KvType formats[] = {KvType::kAuto, KvType::kInt8, KvType::kF32, KvType::kAuto};
  options.kv_full = formats[way % 4];
  options.kv_sliding = formats[(way / 2) % 4];
  if (way % 4 == 3) {
    options.window = 24;
    options.sink = 2;
    options.evicted_full = Evicted::kDrop;
    options.evicted_sliding = way % 8 == 7 ? Evicted::kDrop : Evicted::kKeep;
  }
  return options;
}

// A text that is run in random pieces, each with logits of some of its rows, and what they were.
struct Text {
  std::unique_ptr<Timeline> alone;
  std::unique_ptr<Timeline> together;
  std::vector<TokenId> ids;
};

struct Part {
  Text* text = nullptr;
  std::size_t rows = 0;
  std::int64_t logit_rows = 0;
  std::int64_t committed = 0;
};

std::vector<float> copy(HostRows rows) {
  return {rows.all().begin(), rows.all().end()};
}

// Runs a part in a pass of its own; the logits.
std::vector<float> run_alone(const Part& part) {
  Timeline& timeline = *part.text->alone;
  Pass pass(timeline.workspace());
  EXPECT_TRUE(pass.add(timeline, timeline.pending().first(part.rows), {}, part.logit_rows));
  EXPECT_TRUE(pass.run().has_value());
  timeline.commit(part.committed);
  return copy(pass.host_logits(0));
}

class SharedPass : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Networks,
                         SharedPass,
                         testing::Values("gemma4-moe", "gemma4-moe-edge", "gemma4-e", "qwen3-tied"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Rooms for passes of kMaxParts sequences, too.
void expect_same_bits(const std::string& network, const BackendChoice& choice, Compute compute) {
  const auto model = TestModel::load(network_dir(network), choice, compute);
  ASSERT_NE(model, nullptr);
  WorkspacePlan plan =
      plan_target_passes(model->config(), kMaxParts * kMaxRows, kMaxParts * kMaxRows);
  plan.executor.max_sequences = kMaxParts;
  ASSERT_OK(model->workspace().reserve(plan));
  SequenceRng random(11);
  std::vector<Text> texts(12);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const SessionOptions options = session_options(i);
    const Comparison comparison = {.kv_pairs = i % 3 == 1};
    texts[i].alone = model->timeline(options, kMaxRows, {}, comparison);
    texts[i].together = model->timeline(options, kMaxRows, {}, comparison);
    texts[i].ids = random_ids(40 + random.below(100), i + 1);
    for (TokenId& id : texts[i].ids) id %= static_cast<TokenId>(model->config().vocab_size);
    ASSERT_OK(texts[i].alone->push(texts[i].ids));
    ASSERT_OK(texts[i].together->push(texts[i].ids));
  }
  const int count = in_plain_loops(choice) ? test::by_form(12, 60) : test::by_form(40, 60);
  for (int round = 0; round < count; ++round) {
    std::vector<Part> parts;
    for (Text& text : texts) {
      const std::size_t pending = text.together->pending().size();
      if (pending == 0 || parts.size() == kMaxParts || random.below(3) == 0) continue;
      const bool plain = random.below(2) == 0;
      Part part{.text = &text,
                .rows = plain ? 1 : 1 + random.below(std::min<std::size_t>(pending, kMaxRows))};
      part.logit_rows = static_cast<std::int64_t>(random.below(part.rows + 1));
      // Rows that are not committed are run again, as after a block of wrong drafts.
      part.committed = static_cast<std::int64_t>(random.below(part.rows + 1));
      parts.push_back(part);
    }
    if (parts.empty()) continue;
    Pass pass(model->workspace());
    for (const Part& part : parts) {
      Timeline& timeline = *part.text->together;
      // As a pending token and its drafts.
      const auto ids = timeline.pending().first(part.rows);
      ASSERT_OK(pass.add(timeline, ids.first(1), ids.subspan(1), part.logit_rows));
    }
    EXPECT_TRUE(pass.run().has_value());
    std::vector<std::vector<float>> logits;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      logits.push_back(copy(pass.host_logits(static_cast<std::int64_t>(i))));
      parts[i].text->together->commit(parts[i].committed);
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      ASSERT_EQ(run_alone(parts[i]), logits[i])
          << choice.label() << ", round " << round << ", part " << i << " of " << parts.size();
    }
  }
}

TEST_P(SharedPass, GivesEachSequenceTheBitsOfAPassOfItsOwn) {
  std::size_t combination = GetParam().size();
  for (const BackendChoice& choice : test::all_backends(2)) {
    for (const Compute compute : {Compute::kF32, Compute::kFast}) {
      if (choice.name == "ref" && compute == Compute::kFast) continue;
      if (test::is_run(combination++, 2)) expect_same_bits(GetParam(), choice, compute);
    }
    ++combination;
  }
}

// Layer outputs of all rows, for drafters.
TEST(SharedPassTaps, AreThoseOfEachSequence) {
  const auto model = TestModel::load(KAKEYA_DEMO_MODEL, {.name = "cpu"}, Compute::kFast);
  const auto drafter = model->drafter(KAKEYA_DEMO_MODEL "/drafter");
  ASSERT_NE(drafter, nullptr);
  const SessionOptions options{.context = 128, .max_rows = 32};
  WorkspacePlan plan = plan_target_passes(model->config(), 64, 2);
  plan.executor.max_sequences = 2;
  ASSERT_OK(model->workspace().reserve(plan));
  ASSERT_OK(model->workspace().reserve(plan_drafter_passes(drafter->config(), 32, 15, 64)));
  std::vector<std::unique_ptr<DflashSource>> sources;
  std::vector<std::unique_ptr<Timeline>> timelines;
  for (std::uint64_t i = 0; i < 4; ++i) {
    sources.push_back(model->dflash_source(*drafter, options));
    timelines.push_back(model->timeline(options, 16));
    timelines.back()->set_tap_sink(sources.back().get());
    ASSERT_OK(timelines.back()->push(random_ids(20 + 9 * (i % 2), i % 2)));
  }
  // The first two alone, the others in one pass.
  for (std::size_t i = 0; i < 2; ++i) ASSERT_OK(timelines[i]->run_pending());
  {
    Pass pass(model->workspace());
    for (std::size_t i = 2; i < 4; ++i) {
      ASSERT_OK(pass.add(*timelines[i], timelines[i]->pending(), {}, 1));
    }
    EXPECT_TRUE(pass.run().has_value());
    for (std::size_t i = 2; i < 4; ++i) {
      timelines[i]->commit(std::ssize(timelines[i]->tokens()));
    }
  }
  const auto bytes_of = [&](std::size_t i) {
    const KvPiece taps = sources[i]->taps(std::ssize(timelines[i]->tokens()));
    std::vector<std::byte> bytes(taps.size);
    sources[i]->context().space().download(taps.data, bytes);
    return bytes;
  };
  EXPECT_EQ(bytes_of(2), bytes_of(0));
  EXPECT_EQ(bytes_of(3), bytes_of(1));
  EXPECT_NE(bytes_of(3), bytes_of(0));

  // And so are drafts that are made in one pass.
  Sampler sampler = Sampler::create(model->config().vocab_size, model->budget()).value();
  sampler.set_options({}, {});
  std::vector<std::vector<TokenId>> drafts(4, std::vector<TokenId>(15));
  drafts[1].resize(6);
  drafts[3].resize(6);
  ASSERT_OK(model->workspace().reserve(plan_drafter_passes(drafter->config(), 32, 30, 64)));
  std::vector<DraftJob> jobs;
  for (std::size_t i = 0; i < 4; ++i) {
    const DraftJob job{.source = sources[i].get(),
                       .tokens = timelines[i]->tokens(),
                       .sampler = &sampler,
                       .out = drafts[i]};
    if (i < 2) {
      ASSERT_OK(sources[i]->draft(job.tokens, sampler, drafts[i]));
    } else {
      jobs.push_back(job);
    }
  }
  const Workspace::Turn turn = model->workspace().take_turn();
  ContextWork work;
  ASSERT_OK(DflashSource::draft_together(jobs, work));
  EXPECT_EQ(drafts[2], drafts[0]);
  EXPECT_EQ(drafts[3], drafts[1]);
}

}  // namespace
}  // namespace kakeya
