// Problems asked of a server that is a function.
#include "eval/tasks/served_tasks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"

namespace kakeya::eval {
namespace {

using testing::HasSubstr;

// The answer to the i-th is i.
std::vector<TaskProblem> problems(int count) {
  std::vector<TaskProblem> all;
  for (int i = 0; i < count; ++i) {
    all.push_back({.id = "p" + std::to_string(i),
                   .prompt = "Say " + std::to_string(i) + ".",
                   .answer = std::to_string(i)});
  }
  return all;
}

ServedTaskOptions options() {
  return {.ask = [](const std::string& prompt) -> Result<ServedText> {
            return ServedText{.text = prompt, .tokens = 7, .seconds = 0.5};
          },
          .hash = [](std::string_view text) { return "h" + std::string(text); }};
}

TEST(ServedTasks, EveryProblemGetsItsOwnAnswerWhateverIsAskedAtOnce) {
  const auto asked = problems(23);
  for (const std::int64_t parallel : {1, 4, 64}) {
    ServedTaskOptions options = eval::options();
    options.parallel = parallel;
    // The number in the question, which is the right one, but for the third.
    options.ask = [](const std::string& prompt) -> Result<ServedText> {
      const std::size_t at = prompt.find("Say ") + 4;
      const std::string number = prompt.substr(at, prompt.find('.') - at);
      return ServedText{.text = "#### " + (number == "2" ? "3" : number), .tokens = 7};
    };
    std::map<std::size_t, TaskReply> replies;
    const auto caller = std::this_thread::get_id();
    ASSERT_TRUE(ask_server(asked, options, [&](std::size_t index, TaskReply reply) {
      EXPECT_EQ(std::this_thread::get_id(), caller);
      EXPECT_TRUE(replies.emplace(index, std::move(reply)).second);
      return Status();
    }));
    ASSERT_EQ(replies.size(), asked.size());
    for (const auto& [index, reply] : replies) {
      EXPECT_EQ(reply.id, asked[index].id);
      EXPECT_EQ(reply.judgement.verdict, index == 2 ? TaskVerdict::kFailed : TaskVerdict::kPassed);
      EXPECT_EQ(reply.tokens, 7);
      EXPECT_EQ(reply.sha256, "h#### " + std::to_string(index == 2 ? 3 : index));
      EXPECT_EQ(reply.prompt_sha256, served_question(asked[index], options).prompt_sha256);
      EXPECT_FALSE(reply.passes.has_value());
    }
  }
}

TEST(ServedTasks, AsManyAreAskedAtOnceAsWereWished) {
  ServedTaskOptions options = eval::options();
  options.parallel = 4;
  // Nobody goes on before four have asked.
  std::barrier four(4);
  options.ask = [&](const std::string& prompt) -> Result<ServedText> {
    four.arrive_and_wait();
    return ServedText{.text = prompt};
  };
  EXPECT_TRUE(ask_server(problems(8), options, [](std::size_t, TaskReply) { return Status(); }));
}

TEST(ServedTasks, TheFirstErrorEndsItAndNamesTheProblem) {
  ServedTaskOptions options = eval::options();
  std::atomic<int> asked = 0;
  options.ask = [&](const std::string& prompt) -> Result<ServedText> {
    if (++asked == 3) return error(StatusCode::kUnavailable, "gone");
    return ServedText{.text = prompt};
  };
  int taken = 0;
  const Status lost = ask_server(problems(50), options, [&](std::size_t, TaskReply) {
    ++taken;
    return Status();
  });
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code(), StatusCode::kUnavailable);
  EXPECT_EQ(lost.error().message(), "p2: gone");
  EXPECT_EQ(taken, 2);
  // One that takes no more, with others still to come.
  options.parallel = 8;
  options.ask = eval::options().ask;
  const Status full = ask_server(problems(50), options, [](std::size_t, TaskReply) -> Status {
    return error(StatusCode::kUnavailable, "full");
  });
  ASSERT_FALSE(full);
  EXPECT_THAT(full.error().message(), HasSubstr("full"));
}

TEST(ServedTasks, TokensThatAServerDoesNotCountAreNoSpeed) {
  std::vector<TaskReply> replies(2);
  for (TaskReply& reply : replies) reply.decode_seconds = 0.5;
  const TaskSummary summary = task_summary(replies);
  EXPECT_EQ(summary.tokens_per_second(), 0.0);
  EXPECT_EQ(summary.tokens_per_round(), 0.0);
  const Report json = task_summary_json(summary);
  EXPECT_FALSE(json.contains("rounds"));
  EXPECT_FALSE(json.contains("tokens_per_round"));
}

}  // namespace
}  // namespace kakeya::eval
