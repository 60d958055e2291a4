// Problems asked of the demo model, with drafts and without, and runs that go on where they ended.
#include "eval/tasks/task_eval.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "eval/tasks/task_journal.h"
#include "formats/scratch_files.h"
#include "model/test_model.h"

namespace kakeya::eval {
namespace {

using testing::HasSubstr;

std::string hash_of(std::span<const TokenId> ids) {
  return std::to_string(
      std::accumulate(ids.begin(), ids.end(), std::int64_t{17},
                      [](std::int64_t a, TokenId b) { return (31 * a + b) % 1000000007; }));
}

class TaskEval : public testing::Test {
 protected:
  TaskEval() {
    EngineOptions options = {.model_dir = KAKEYA_DEMO_MODEL, .num_threads = 1};
    options.draft.source = "auto";
    engine_ = EngineImpl::open(options).value();
    options_.session.context = 300;
    options_.max_tokens = 40;
    options_.hash = hash_of;
  }

  // The demo model was trained to do so.
  static std::vector<TaskProblem> counting() {
    return {{.id = "a", .prompt = "Count from 5 to 12.", .answer = "12"},
            {.id = "b", .prompt = "Count from 3 to 9.", .answer = "8"}};
  }
  std::unique_ptr<TaskEvaluation> evaluation() {
    return TaskEvaluation::create(*engine_, counting(), options_).value();
  }

  std::unique_ptr<EngineImpl> engine_;
  TaskOptions options_;
};

TEST_F(TaskEval, RepliesAreTheSameWithDraftsAndWithout) {
  options_.compare_plain = true;
  options_.draft_length = 4;
  for (const bool raw : {false, true}) {
    options_.raw = raw;
    const auto drafted = evaluation();
    std::int64_t accepted = 0;
    for (std::size_t i = 0; i < drafted->size(); ++i) {
      const TaskReply reply = drafted->ask(i).value();
      EXPECT_EQ(reply.plain_sha256, reply.sha256) << reply.id;
      EXPECT_GE(reply.tokens, 1);
      EXPECT_LE(reply.tokens, options_.max_tokens);
      EXPECT_LE(reply.passes->rounds, reply.tokens - 1);
      EXPECT_GE(reply.passes->rounds + reply.passes->accepted, reply.tokens - 1);
      EXPECT_GT(reply.decode_seconds, 0.0);
      accepted += reply.passes->accepted;
      // In a session that has answered another problem, and again.
      EXPECT_EQ(drafted->ask(i).value().sha256, reply.sha256);
    }
    EXPECT_GT(accepted, 0);
  }
}

TEST_F(TaskEval, AProblemWithoutRoomIsRefusedBeforeAnyIsAsked) {
  options_.session.context = 64;
  const auto refused = TaskEvaluation::create(*engine_, counting(), options_);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message(),
              HasSubstr("a: expected a prompt and a reply of at most 64"));
}

TEST_F(TaskEval, AJournalGivesRepliesBackAsTheyWere) {
  const ScratchFolder folder;
  const std::string path = folder.path("run.jsonl");
  const Report run = {{"weights", "w"}};
  const auto asked = evaluation();
  TaskReply reply = asked->ask(1).value();
  reply.judgement.detail = "why";
  {
    TaskJournal journal = TaskJournal::open(path, run).value();
    EXPECT_EQ(journal.find(asked->question(1)).value(), nullptr);
    ASSERT_TRUE(journal.add(reply));
  }
  std::ofstream(path, std::ios::app) << "{\"id\": \"a\", half of a li";
  const TaskJournal journal = TaskJournal::open(path, run).value();
  EXPECT_EQ(journal.find(asked->question(0)).value(), nullptr);
  const TaskReply* known = journal.find(asked->question(1)).value();
  ASSERT_NE(known, nullptr);
  EXPECT_EQ(task_reply_json(*known), task_reply_json(reply));
  // Another problem of that name, another run, and what is no journal.
  TaskReply other = asked->question(1);
  other.expected = "9";
  EXPECT_EQ(journal.find(other).error().code(), StatusCode::kFailedPrecondition);
  other = asked->question(1);
  other.prompt_sha256 = "0";
  EXPECT_EQ(journal.find(other).error().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(TaskJournal::open(path, {{"weights", "v"}}).error().message(), HasSubstr("weights"));
  std::ofstream(path, std::ios::app) << "{\"id\": \"a\"}\n";
  EXPECT_THAT(TaskJournal::open(path, run).error().message(), HasSubstr("run.jsonl:3: "));
}

TEST(TaskSummaries, AddUp) {
  std::vector<TaskReply> replies(4);
  for (std::size_t i = 0; i < replies.size(); ++i) {
    replies[i] = {.tokens = 11,
                  .decode_seconds = 0.5,
                  .passes = TaskPasses{.rounds = 4, .drafted = 9, .accepted = 6}};
    replies[i].judgement.verdict = static_cast<TaskVerdict>(i);
  }
  TaskSummary summary = task_summary(replies);
  EXPECT_EQ(summary.problems, 4);
  EXPECT_EQ(summary.passed, 1);
  EXPECT_EQ(summary.failed, 1);
  EXPECT_EQ(summary.timed_out, 1);
  EXPECT_EQ(summary.crashed, 1);
  EXPECT_EQ(summary.no_answer, 0);
  EXPECT_EQ(summary.score(), 0.25);
  EXPECT_EQ(summary.tokens_per_round(), 2.5);
  EXPECT_EQ(summary.tokens_per_second(), 20.0);
  EXPECT_EQ(summary.equal_plain, std::nullopt);
  // Only where all were made both ways.
  for (TaskReply& reply : replies) {
    EXPECT_EQ(task_summary(replies).equal_plain, std::nullopt);
    reply.plain_sha256 = reply.sha256;
  }
  replies[2].plain_sha256 = "other";
  EXPECT_EQ(task_summary(replies).equal_plain, 3);
}

}  // namespace
}  // namespace kakeya::eval
