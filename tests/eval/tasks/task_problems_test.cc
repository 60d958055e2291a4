// Problems with a right answer: what is read of them, and what of a reply counts as the answer.
#include "eval/tasks/task_problems.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace kakeya::eval {
namespace {

using testing::HasSubstr;

std::vector<TaskProblem> public_problems(TaskKind kind) {
  std::ifstream file(KAKEYA_SOURCE_DIR "/eval/data/" + task_name(kind) + ".jsonl");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return parse_problems(kind, text, "data").value();
}

TEST(TaskProblems, AreThoseThatArePublished) {
  const auto code = public_problems(TaskKind::kHumanEval);
  ASSERT_EQ(code.size(), 164U);
  EXPECT_EQ(code[163].id, "HumanEval/163");
  EXPECT_EQ(code[0].entry_point, "has_close_elements");
  for (const TaskProblem& problem : code) {
    EXPECT_THAT(problem.prompt, HasSubstr("def " + problem.entry_point + "(")) << problem.id;
    EXPECT_THAT(problem.test, HasSubstr("def check(candidate)")) << problem.id;
    EXPECT_FALSE(problem.solution.empty()) << problem.id;
  }
  const auto numbers = public_problems(TaskKind::kGsm8k);
  ASSERT_EQ(numbers.size(), 100U);
  EXPECT_EQ(numbers[0].id, "gsm8k/1");
  EXPECT_EQ(numbers[0].answer, "18");
  EXPECT_EQ(numbers[2].answer, "70000");
}

TEST(TaskProblems, AreRefusedInOneLine) {
  const auto refused = [](TaskKind kind, const std::string& text) {
    const auto problems = parse_problems(kind, text, "set");
    return problems ? std::string("read") : problems.error().message();
  };
  EXPECT_THAT(refused(TaskKind::kGsm8k, ""), HasSubstr("set holds no problem"));
  EXPECT_THAT(refused(TaskKind::kGsm8k, "\n{\"question\": \"a\"}"), HasSubstr("set:2: answer"));
  EXPECT_THAT(refused(TaskKind::kGsm8k, "{\"question\": \"a\", \"answer\": \"many\"}"),
              HasSubstr("expected a number behind ####"));
  const std::string code = "{\"task_id\": \"a\", \"prompt\": \"b\", \"test\": \"c\"";
  EXPECT_THAT(refused(TaskKind::kHumanEval, code + "}"), HasSubstr("set:1: entry_point"));
  const std::string line = code + ", \"entry_point\": \"d\"}\n";
  EXPECT_EQ(refused(TaskKind::kHumanEval, line), "read");
  EXPECT_THAT(refused(TaskKind::kHumanEval, line + line), HasSubstr("set:2: expected each"));
}

TEST(TaskAnswers, ANumberIsTheOneBehindTheLastMark) {
  const std::pair<const char*, const char*> cases[] = {
      {"16 - 3 = 13\n#### 18", "18"},
      {"#### 1\nno, wait\n#### 2", "2"},
      {"####18", "18"},
      {"#### **$1,450,000.50**.", "1450000.5"},
      {"#### 18 eggs, of which 3 are left", "18"},
      {"#### -5", "-5"},
      {"#### -$5", "-5"},
      {"#### $-5.00", "-5"},
      {"#### \u22125", "-5"},
      {"#### 007", "7"},
      {"#### .50", "0.5"},
      {"#### 0.0", "0"},
      {"#### -0", "0"},
      {"#### 50%", "50"},
      // None behind the mark, or no mark: the last one of all.
      {"It is 12.\n#### ", "12"},
      {"It is 12.\n#### NUMBER", "12"},
      {"First 3, then 16-3=13", "13"},
      {"16-3", "3"},
      {"(2)-3", "3"},
      {"She pays $70,000.", "70000"},
      {"1,2,3", "3"},
      {"12,34", "34"},
      {"<think>#### 4</think>\n#### 5", "5"},
      {"<think>#### 4</think>\nnothing", ""},
      {"", ""},
      {"####", ""},
      {"no number, ,.-$ at all", ""},
  };
  for (const auto& [reply, number] : cases) {
    EXPECT_EQ(number_of(reply), number) << reply;
  }
}

TEST(TaskAnswers, ANumberThatIsTooLongIsNone) {
  EXPECT_EQ(number_of("7 or " + std::string(100'000, '9')), "7");
  EXPECT_EQ(number_of("#### " + std::string(1000, '-') + "5"), "-5");
  EXPECT_EQ(number_of(std::string(100'000, ',')), "");
  for (const char* text : {"", "-", "$", ".", "1-2", "1e5", "0x10", "1 2", "--1", "1,23", "nan"}) {
    EXPECT_EQ(normal_number(text), "") << text;
  }
  EXPECT_EQ(normal_number(" $1,234.50. "), "1234.5");
}

TEST(TaskAnswers, ReferenceAnswersAreTheirOwn) {
  std::ifstream file(KAKEYA_SOURCE_DIR "/eval/data/gsm8k.jsonl");
  std::size_t index = 0;
  const auto problems = public_problems(TaskKind::kGsm8k);
  for (std::string line; std::getline(file, line); ++index) {
    // The text of the answer, as a model might write it; escapes do not matter here.
    EXPECT_EQ(number_of(line), problems.at(index).answer) << line;
  }
}

TEST(TaskAnswers, CodeIsTheFirstBlockOfAMessage) {
  const std::pair<const char*, const char*> cases[] = {
      {"Here:\n```python\nx = 1\n```\nand\n```\ny = 2\n```", "x = 1\n"},
      {"```\nx = 1\n", "x = 1\n"},
      {"```py\nx = '```'\n  ```", "x = '```'\n"},
      {"```python\ndef f():\n  return 1\ndef g():\n  return 2\n```",
       "def f():\n  return 1\ndef g():\n  return 2\n"},
      {"<think>```\nno\n```</think>```\nyes\n```", "yes\n"},
      // Nothing between the lines, or no line after the first.
      {"```python\n```\nx = 1", ""},
      {"```python\n  \n\n```", ""},
      {"```python", ""},
      // Without a block: up to the first stop.
      {"def f():\n  return 1\nprint(f())", "def f():\n  return 1"},
      {"", ""},
      {" \n\t", ""},
  };
  for (const auto& [reply, code] : cases) EXPECT_EQ(code_of(reply, false), code) << reply;
}

TEST(TaskAnswers, CodeOfARawPromptEndsAtTheFirstStop) {
  for (const char* stop :
       {"\nclass A:", "\ndef g():", "\n# so", "\nif x:", "\nprint(1)", "\n```"}) {
    EXPECT_EQ(code_of("  return 1" + std::string(stop) + "\ndef h():", true), "  return 1") << stop;
  }
  EXPECT_EQ(code_of("  return 1\n  # not here\n  if x:\n    print(1)\n", true),
            "  return 1\n  # not here\n  if x:\n    print(1)\n");
  // A fence is no block there.
  EXPECT_EQ(code_of("  x = '```'\n  return x", true), "  x = '```'\n  return x");
  EXPECT_EQ(code_of("\ndef g():", true), "");
}

TEST(TaskPrompts, AskForWhatIsRead) {
  const TaskProblem problem = {.id = "a", .prompt = "def f():\n", .entry_point = "f", .test = "T"};
  EXPECT_EQ(task_prompt(TaskKind::kHumanEval, problem, true), problem.prompt);
  EXPECT_THAT(task_prompt(TaskKind::kHumanEval, problem, false),
              HasSubstr("```python\ndef f():\n```"));
  EXPECT_THAT(task_prompt(TaskKind::kGsm8k, problem, false), HasSubstr("#### NUMBER"));
  EXPECT_TRUE(task_stops(TaskKind::kHumanEval, false).empty());
  EXPECT_THAT(task_stops(TaskKind::kHumanEval, true), testing::Contains("\ndef"));
  EXPECT_EQ(task_program(problem, "  return 1", true), "def f():\n  return 1\nT\ncheck(f)\n");
  EXPECT_EQ(task_program(problem, "x", false), "def f():\n\nx\nT\ncheck(f)\n");
}

}  // namespace
}  // namespace kakeya::eval
