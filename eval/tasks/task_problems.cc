#include "eval/tasks/task_problems.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/status.h"
#include "formats/json_document.h"

namespace kakeya::eval {
namespace {

constexpr std::array kCodeStops = {"\nclass", "\ndef", "\n#", "\nif", "\nprint", "\n```"};
constexpr std::string_view kFence = "```";
constexpr std::string_view kMinus = "\u2212";
constexpr std::string_view kBlank = " \t\r\n";

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// The reply without what a model thought before it.
std::string_view behind_thoughts(std::string_view reply) {
  constexpr std::string_view kEnd = "</think>";
  const std::size_t at = reply.rfind(kEnd);
  return at == std::string_view::npos ? reply : reply.substr(at + kEnd.size());
}

Result<std::string> needed_text(const JsonFields& fields, std::string_view name) {
  KAKEYA_ASSIGN_OR_RETURN(std::string text, fields.text_or(name, ""));
  if (text.empty()) return invalid_argument("{}: expected a text, got nothing", name);
  return text;
}

Result<TaskProblem> parse_code_problem(const JsonFields& fields) {
  TaskProblem problem;
  const char* id = fields.has("task_id") ? "task_id" : "id";
  KAKEYA_ASSIGN_OR_RETURN(problem.id, needed_text(fields, id));
  KAKEYA_ASSIGN_OR_RETURN(problem.prompt, needed_text(fields, "prompt"));
  KAKEYA_ASSIGN_OR_RETURN(problem.entry_point, needed_text(fields, "entry_point"));
  KAKEYA_ASSIGN_OR_RETURN(problem.test, needed_text(fields, "test"));
  KAKEYA_ASSIGN_OR_RETURN(problem.solution, fields.text_or("canonical_solution", ""));
  return problem;
}

Result<TaskProblem> parse_number_problem(const JsonFields& fields, std::size_t number) {
  TaskProblem problem{.id = fmt::format("gsm8k/{}", number)};
  KAKEYA_ASSIGN_OR_RETURN(problem.prompt, needed_text(fields, "question"));
  KAKEYA_ASSIGN_OR_RETURN(const std::string answer, needed_text(fields, "answer"));
  const std::size_t at = answer.rfind("####");
  problem.answer = at == std::string::npos ? "" : normal_number(answer.substr(at + 4));
  if (problem.answer.empty()) {
    return invalid_argument("answer: expected a number behind ####, got none");
  }
  return problem;
}

Result<TaskProblem> parse_task_line(TaskKind kind, std::string_view line, std::size_t number) {
  KAKEYA_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::parse(line));
  KAKEYA_ASSIGN_OR_RETURN(const JsonFields fields, root_fields(document));
  if (kind == TaskKind::kHumanEval) return parse_code_problem(fields);
  return parse_number_problem(fields, number);
}

std::string_view before_stop(std::string_view text) {
  for (const char* stop : kCodeStops) text = text.substr(0, text.find(stop));
  return text;
}

// Up to a line that begins with the fence.
std::string_view before_fence(std::string_view block) {
  for (std::size_t at = 0; at < block.size();) {
    const std::size_t begin = block.find_first_not_of(" \t", at);
    if (begin != std::string_view::npos && block.substr(begin).starts_with(kFence)) {
      return block.substr(0, at);
    }
    const std::size_t end = block.find('\n', at);
    if (end == std::string_view::npos) break;
    at = end + 1;
  }
  return block;
}

// A number that begins at `at`; its end, or `at` if there is none. Commas stand before groups of
// three digits.
std::size_t end_of_number(std::string_view text, std::size_t at) {
  const auto digit = [&](std::size_t i) { return i < text.size() && is_digit(text[i]); };
  const auto group = [&](std::size_t i) {
    return digit(i) && digit(i + 1) && digit(i + 2) && !digit(i + 3);
  };
  std::size_t end = at;
  while (digit(end)) ++end;
  while (end > at && end < text.size() && text[end] == ',' && group(end + 1)) end += 4;
  if (end < text.size() && text[end] == '.' && digit(end + 1)) {
    ++end;
    while (digit(end)) ++end;
  }
  return end;
}

// True if the sign in front of a number belongs to it: "-5", "-$5" and "$-5", but not "16-3".
bool is_negative(std::string_view before) {
  const auto drop_dollar = [&] {
    if (before.ends_with('$')) before.remove_suffix(1);
  };
  drop_dollar();
  if (before.ends_with('-')) {
    before.remove_suffix(1);
  } else if (before.ends_with(kMinus)) {
    before.remove_suffix(kMinus.size());
  } else {
    return false;
  }
  drop_dollar();
  if (before.empty()) return true;
  const char c = before.back();
  return !is_digit(c) && c != ')' && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z');
}

// All numbers of a text, as normal_number() has them.
std::vector<std::string> numbers_in(std::string_view text) {
  std::vector<std::string> found;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = end_of_number(text, at);
    if (end == at) {
      ++at;
      continue;
    }
    std::string number = is_negative(text.substr(0, at)) ? "-" : "";
    number += text.substr(at, end - at);
    number = normal_number(number);
    if (!number.empty()) found.push_back(std::move(number));
    at = end;
  }
  return found;
}

}  // namespace

std::string task_name(TaskKind kind) {
  return kind == TaskKind::kHumanEval ? "humaneval" : "gsm8k";
}

Result<std::vector<TaskProblem>> parse_problems(TaskKind kind,
                                                std::string_view text,
                                                const std::string& origin) {
  std::vector<TaskProblem> problems;
  std::set<std::string> ids;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.find_first_not_of(kBlank) == std::string_view::npos) continue;
    auto problem = parse_task_line(kind, line, number);
    if (!problem) {
      return Unexpected(problem.error().with_context(fmt::format("{}:{}", origin, number)));
    }
    if (!ids.insert(problem->id).second) {
      return invalid_argument("{}:{}: expected each problem once, got {} again", origin, number,
                              problem->id);
    }
    problems.push_back(std::move(problem).value());
  }
  if (problems.empty()) {
    return invalid_argument("{} holds no problem; expected lines of {}", origin,
                            kind == TaskKind::kHumanEval ? "{\"task_id\": ..., \"prompt\": ...}"
                                                         : "{\"question\": ..., \"answer\": ...}");
  }
  return problems;
}

std::string task_prompt(TaskKind kind, const TaskProblem& problem, bool raw) {
  if (kind == TaskKind::kHumanEval) {
    if (raw) return problem.prompt;
    return "Complete this Python function. Answer with the whole function in one block of code."
           "\n\n```python\n" +
           problem.prompt + "```";
  }
  if (raw) return "Question: " + problem.prompt + "\nAnswer:";
  return problem.prompt +
         "\n\nThink step by step. End with a line that holds the number alone, as \"#### NUMBER\".";
}

std::vector<std::string> task_stops(TaskKind kind, bool raw) {
  if (!raw) return {};
  if (kind == TaskKind::kGsm8k) return {"\nQuestion:"};
  return {kCodeStops.begin(), kCodeStops.end()};
}

std::string code_of(std::string_view reply, bool raw) {
  std::string_view code = raw ? reply : behind_thoughts(reply);
  const std::size_t fence = raw ? std::string_view::npos : code.find(kFence);
  if (fence == std::string_view::npos) {
    code = before_stop(code);
  } else {
    const std::size_t line = code.find('\n', fence);
    code =
        line == std::string_view::npos ? std::string_view() : before_fence(code.substr(line + 1));
  }
  if (code.find_first_not_of(kBlank) == std::string_view::npos) return {};
  return std::string(code);
}

std::string task_program(const TaskProblem& problem, const std::string& code, bool raw) {
  // A whole function takes the place of the one that the prompt begins; a body continues it.
  return problem.prompt + (raw ? "" : "\n") + code + "\n" + problem.test + "\ncheck(" +
         problem.entry_point + ")\n";
}

std::string normal_number(std::string_view text) {
  constexpr std::size_t kMostDigits = 100;
  constexpr std::string_view kAround = " \t\r\n$";
  while (!text.empty() && kAround.find(text.front()) != std::string_view::npos) {
    text.remove_prefix(1);
  }
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  while (!text.empty() &&
         (kAround.find(text.back()) != std::string_view::npos || text.back() == '.')) {
    text.remove_suffix(1);
  }
  if (text.starts_with('$')) text.remove_prefix(1);
  const std::size_t end = end_of_number(text, 0);
  if (end == 0 || end != text.size() || end > kMostDigits) return {};
  std::string digits(text);
  std::erase(digits, ',');
  const std::size_t point = digits.find('.');
  if (point != std::string::npos) {
    digits.resize(digits.find_last_not_of('0') + 1);
    if (digits.ends_with('.')) digits.pop_back();
  }
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  if (digits.empty() || digits.front() == '.') digits.insert(0, "0");
  return negative && digits != "0" ? "-" + digits : digits;
}

std::string number_of(std::string_view reply) {
  reply = behind_thoughts(reply);
  const std::size_t mark = reply.rfind("####");
  if (mark != std::string_view::npos) {
    const std::vector<std::string> behind = numbers_in(reply.substr(mark + 4));
    if (!behind.empty()) return behind.front();
  }
  const std::vector<std::string> all = numbers_in(reply);
  return all.empty() ? std::string() : all.back();
}

}  // namespace kakeya::eval
