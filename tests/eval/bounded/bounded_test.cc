// `kakeya eval bounded`: both ways on the demo model, and the gate on reports that say too much.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/sha256.h"
#include "eval/bounded/bounded_eval.h"
#include "eval/report/made_reports.h"
#include "runtime/engine_impl.h"

namespace kakeya::eval {
namespace {

class BoundedEval : public testing::Test {
 protected:
  BoundedEval()
      : engine_(EngineImpl::open({.model_dir = KAKEYA_DEMO_MODEL, .num_threads = 2}, {}).value()),
        maker_(NeedlePrompts::create(engine_->text(),
                                     {"Rain fell on the hills. Birds sang."},
                                     {},
                                     /*seed=*/1)
                   .value()) {
    for (const std::int64_t depth : options_.depths) {
      prompts_.push_back(maker_.make({kLength, depth, 0}).value());
    }
    run_.plain.drafting = false;
  }

  BoundedLength evaluate() {
    auto length = evaluate_bounded(*engine_, prompts_, kLength, options_, run_);
    EXPECT_TRUE(length.has_value()) << length.error().message();
    return std::move(length).value();
  }

  static constexpr std::int64_t kLength = 200;
  std::shared_ptr<EngineImpl> engine_;
  NeedlePrompts maker_;
  BoundedOptions options_ = {
      .lengths = {kLength}, .depths = {10, 60}, .samples = 1, .pairs = 2, .max_tokens = 12};
  std::vector<NeedlePrompt> prompts_;
  BoundedRun run_ = {.hash = cli::ids_sha256};
};

// With the memory of plain decoding the other way gives plain's replies, drafted or not.
TEST_F(BoundedEval, IsPlainDecodingWithoutBounds) {
  const BoundedLength length = evaluate();
  ASSERT_EQ(length.prompts.size(), 2U);
  for (const BoundedPrompt& prompt : length.prompts) {
    EXPECT_EQ(prompt.plain_sha256, prompt.bounded_sha256);
    EXPECT_EQ(prompt.plain_found, prompt.bounded_found);
  }
  EXPECT_GE(length.share_of_bytes(), 1.0);  // drafts keep a context of their own
  EXPECT_GT(length.drafted, 0);
  EXPECT_FALSE(length.all_three());
  EXPECT_EQ(length.plain_seconds.size(), 2U);
  EXPECT_EQ(length.bounded_seconds.size(), 2U);
}

// The session of a user with the same flags replies alike, and has those bytes.
TEST_F(BoundedEval, IsASessionOfTheFlags) {
  run_.bounded = {.kv_full = KvType::kInt8, .kv_sliding = KvType::kInt8, .drafting = false};
  const BoundedLength length = evaluate();
  EXPECT_EQ(length.drafted, 0);
  EXPECT_NEAR(length.share_of_bytes(), 0.5, 0.1);  // of bf16, and scales
  SessionOptions options = run_.bounded;
  options.context = kLength + options_.max_tokens;
  const auto session = engine_->create_session(options).value();
  ASSERT_TRUE(session->append(prompts_[1].ids).has_value());
  const auto reply = session->generate({.max_tokens = options_.max_tokens}).value();
  EXPECT_EQ(length.prompts[1].bounded_sha256, cli::ids_sha256(reply.ids));
  EXPECT_EQ(length.prompts[1].bounded_tokens, std::ssize(reply.ids));
}

TEST(BoundedReports, ThatSayTooMuchAreRejected) {
  const Report report = kept_report("bounded-smollm2");
  const auto first = [](Report& r) -> Report& { return r["lengths"][0]; };
  expect_rejected(
      report,
      {{"recall", [&](Report& r) { first(r)["bounded_found"] = 20; }},
       {"recall",
        [&](Report& r) {
          Report& prompt = first(r)["prompts"][0];
          prompt["bounded_sha256"] = prompt["plain_sha256"];
          prompt["bounded_tokens"] = prompt["plain_tokens"].get<int>() + 1;
        }},
       {"bytes", [&](Report& r) { first(r)["share_of_bytes"] = 0.1; }},
       {"headline", [&](Report& r) { first(r)["time_ratio"] = 0.5; }},
       {"headline", [&](Report& r) { first(r)["all_three"] = !first(r)["all_three"].get<bool>(); }},
       {"counts", [&](Report& r) { first(r)["prompts"].erase(0); }},
       {"counts", [&](Report& r) { first(r)["accepted"] = first(r)["drafted"].get<int>() + 1; }},
       {"counts", [&](Report& r) { first(r)["prompts"][0]["plain_tokens"] = 65; }},
       {"same-run", [&](Report& r) { first(r)["plain_seconds"].erase(0); }},
       {"provenance", [&](Report& r) { r["options"]["seed"] = 7; }}});
}

}  // namespace
}  // namespace kakeya::eval
