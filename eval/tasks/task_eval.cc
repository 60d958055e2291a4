#include "eval/tasks/task_eval.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

#include "base/status.h"
#include "eval/prompts/prompt_set.h"
#include "kakeya/text_generation.h"

namespace kakeya::eval {
namespace {

// A word that a program cannot know before it has run to its end.
std::string new_word() {
  std::random_device random;
  std::string word;
  for (int i = 0; i < 4; ++i) word += fmt::format("{:08x}", random());
  return word;
}

// The last line that is not empty, with what can be printed of it.
std::string last_line(std::string_view output) {
  constexpr std::size_t kMostCharacters = 200;
  while (!output.empty() && (output.back() == '\n' || output.back() == ' ')) {
    output.remove_suffix(1);
  }
  const std::size_t line = output.rfind('\n');
  if (line != std::string_view::npos) output.remove_prefix(line + 1);
  std::string text(output.substr(0, kMostCharacters));
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

// Continues a prompt, of whose beginning the session may have run some.
Result<TextResult> continue_prompt(Session& session,
                                   const Tokenizer& tokenizer,
                                   std::span<const TokenId> prompt,
                                   const TextOptions& options) {
  if (const auto kept = session.sync(prompt); !kept) return Unexpected(kept.error());
  return generate_text(session, tokenizer, options);
}

}  // namespace

Judgement judge_number(const TaskProblem& problem, std::string_view reply) {
  Judgement judgement{.got = number_of(reply)};
  if (judgement.got.empty()) return judgement;
  judgement.verdict = judgement.got == problem.answer ? TaskVerdict::kPassed : TaskVerdict::kFailed;
  return judgement;
}

Result<Judgement> judge_code(const TaskProblem& problem,
                             std::string_view reply,
                             bool raw,
                             const PythonRunner& python) {
  const std::string code = code_of(reply, raw);
  if (code.empty()) return Judgement{};
  const std::string word = new_word();
  KAKEYA_ASSIGN_OR_RETURN(
      const ChildRun run,
      python.run(task_program(problem, code, raw) + "\nimport os\nos.write(1, b'" + word + "')\n"));
  switch (run.end) {
    case ChildEnd::kTimedOut:
      return Judgement{.verdict = TaskVerdict::kTimedOut};
    case ChildEnd::kSignal:
      return Judgement{.verdict = TaskVerdict::kCrashed,
                       .detail = fmt::format("signal {}", run.code)};
    case ChildEnd::kTooMuchOutput:
      return Judgement{
          .verdict = TaskVerdict::kFailed,
          .detail = fmt::format("wrote more than {} bytes", python.limits().output_bytes)};
    case ChildEnd::kStopped:  // nobody stops it
    case ChildEnd::kExited:
      break;
  }
  const bool reached_end = run.output.find(word) != std::string::npos;
  if (run.code == 0 && reached_end) return Judgement{.verdict = TaskVerdict::kPassed};
  if (run.code == 0) {
    return Judgement{.verdict = TaskVerdict::kFailed, .detail = "ended before the test did"};
  }
  return Judgement{.verdict = TaskVerdict::kFailed, .detail = last_line(run.output)};
}

Result<Judgement> judge(TaskKind kind,
                        const TaskProblem& problem,
                        std::string_view reply,
                        bool raw,
                        const PythonRunner* python) {
  if (kind == TaskKind::kGsm8k) return judge_number(problem, reply);
  return judge_code(problem, reply, raw, *python);
}

Result<std::unique_ptr<TaskEvaluation>> TaskEvaluation::create(
    EngineImpl& engine, std::span<const TaskProblem> problems, const TaskOptions& options) {
  std::unique_ptr<TaskEvaluation> evaluation(new TaskEvaluation(engine, problems, options));
  KAKEYA_TRY(evaluation->prepare());
  return evaluation;
}

Status TaskEvaluation::prepare() {
  std::vector<PromptText> texts;
  for (const TaskProblem& problem : problems_) {
    PromptText& text = texts.emplace_back();
    text.id = problem.id;
    text.prompt = task_prompt(options_.kind, problem, options_.raw);
  }
  KAKEYA_ASSIGN_OR_RETURN(PromptSet set,
                          encode_prompts(engine_, task_name(options_.kind), texts,
                                         options_.raw ? PromptForm::kRaw : PromptForm::kChat));
  KAKEYA_ASSIGN_OR_RETURN(session_, engine_.create_session(options_.session));
  if (options_.compare_plain) {
    SessionOptions plain = options_.session;
    plain.drafting = false;
    KAKEYA_ASSIGN_OR_RETURN(plain_, engine_.create_session(plain));
  }
  for (std::size_t i = 0; i < problems_.size(); ++i) {
    EvalPrompt& prompt = set.prompts[i];
    if (std::ssize(prompt.ids) + options_.max_tokens > session_->context()) {
      return invalid_argument(
          "{}: expected a prompt and a reply of at most {} tokens together, got {} and {}",
          prompt.id, session_->context(), prompt.ids.size(), options_.max_tokens);
    }
    questions_.push_back({.id = prompt.id,
                          .prompt_sha256 = options_.hash(prompt.ids),
                          .passes = TaskPasses{.prompt_tokens = std::ssize(prompt.ids)},
                          .expected = problems_[i].answer});
    prompts_.push_back(std::move(prompt.ids));
  }
  return {};
}

Result<TaskReply> TaskEvaluation::ask(std::size_t index) {
  TaskReply reply = questions_[index];
  if (const Status done = fill(index, reply); !done) {
    return Unexpected(done.error().with_context(reply.id));
  }
  return reply;
}

Status TaskEvaluation::fill(std::size_t index, TaskReply& reply) {
  KAKEYA_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, engine_.tokenizer());
  TextOptions text;
  text.stop_strings = task_stops(options_.kind, options_.raw);
  text.generate.max_tokens = options_.max_tokens;
  text.generate.draft_length = options_.draft_length;
  KAKEYA_ASSIGN_OR_RETURN(const TextResult said,
                          continue_prompt(*session_, *tokenizer, prompts_[index], text));
  const GenerateResult& result = said.tokens;
  reply.sha256 = options_.hash(result.ids);
  reply.tokens = std::ssize(result.ids);
  reply.decode_seconds = std::max(result.decode_seconds, kShortestTaskSeconds);
  reply.passes->rounds = std::ssize(result.rounds);
  reply.passes->drafted = result.drafted;
  reply.passes->accepted = result.accepted;
  reply.passes->prefill_seconds = std::max(result.prefill_seconds, kShortestTaskSeconds);
  if (plain_ != nullptr) {
    text.generate.draft_length = 0;
    KAKEYA_ASSIGN_OR_RETURN(const TextResult plain,
                            continue_prompt(*plain_, *tokenizer, prompts_[index], text));
    reply.plain_sha256 = options_.hash(plain.tokens.ids);
  }
  KAKEYA_ASSIGN_OR_RETURN(reply.judgement, judge(options_.kind, problems_[index], said.text,
                                                 options_.raw, options_.python));
  return {};
}

}  // namespace kakeya::eval
