#include "eval/spec/speculation_eval.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/status.h"
#include "bench/scripted_drafts.h"
#include "eval/prompts/needle_prompts.h"

namespace kakeya::eval {
namespace {

// A set in which every reply is one token takes no time to decode.
constexpr double kShortestTime = 1e-9;

struct Output {
  std::vector<TokenId> ids;
  StopReason stop_reason = StopReason::kMaxTokens;

  bool operator==(const Output&) const = default;
};

// The sessions of one set, and what its outputs have to be.
class SetEvaluation {
 public:
  static Result<std::unique_ptr<SetEvaluation>> create(EngineImpl& engine,
                                                       const PromptSet& set,
                                                       const SpeculationEvalOptions& options);
  Status plain_pass();
  Status pair();
  Status count_recall(const Tokenizer& tokenizer);
  SpeculationReport report() &&;

 private:
  SetEvaluation(const PromptSet& set, const SpeculationEvalOptions& options)
      : set_(set), options_(options), differs_(set.prompts.size()), total_(total_generations()) {}

  std::int64_t total_generations() const {
    return static_cast<std::int64_t>(set_.prompts.size()) * (1 + 2 * options_.pairs);
  }
  Result<GenerateResult> generate(Session& session, std::size_t index, std::int64_t draft_length);
  Result<double> timed_plain(std::size_t index);
  Result<double> timed_speculative(std::size_t index);

  const PromptSet& set_;
  const SpeculationEvalOptions& options_;
  std::unique_ptr<Session> plain_;
  bench::DraftScript script_;
  std::unique_ptr<Session> speculative_;  // after script_, to which its drafts may refer
  std::vector<Output> expected_;
  std::vector<Output> speculative_outputs_;  // of the first pair
  std::vector<bool> differs_;
  SpeculationReport report_;
  std::int64_t done_ = 0;
  std::int64_t total_ = 0;
};

Result<std::unique_ptr<SetEvaluation>> SetEvaluation::create(
    EngineImpl& engine, const PromptSet& set, const SpeculationEvalOptions& options) {
  std::unique_ptr<SetEvaluation> evaluation(new SetEvaluation(set, options));
  evaluation->script_.vocab_size = engine.vocab_size();
  DraftWrapper wrapper;
  if (options.forced_rejection) {
    wrapper = [script = &evaluation->script_](DraftSource& source) {
      return std::make_unique<bench::ScriptedDrafts>(source, *script);
    };
  }
  SessionOptions plain = options.session;
  plain.drafting = false;
  KAKEYA_ASSIGN_OR_RETURN(evaluation->plain_, engine.create_session(plain));
  KAKEYA_ASSIGN_OR_RETURN(evaluation->speculative_,
                          engine.create_session(options.session, {.wrapper = wrapper}));
  return evaluation;
}

Result<GenerateResult> SetEvaluation::generate(Session& session,
                                               std::size_t index,
                                               std::int64_t draft_length) {
  const EvalPrompt& prompt = set_.prompts[index];
  GenerateOptions options = options_.generate;
  options.draft_length = draft_length;
  Result<GenerateResult> result;
  if (const auto kept = session.sync(prompt.ids); kept) {
    result = session.generate(options);
  } else {
    result = Unexpected(kept.error());
  }
  if (!result) return Unexpected(result.error().with_context(set_.name + " " + prompt.id));
  if (options_.on_progress) options_.on_progress(++done_, total_);
  return result;
}

Status SetEvaluation::plain_pass() {
  for (std::size_t i = 0; i < set_.prompts.size(); ++i) {
    KAKEYA_ASSIGN_OR_RETURN(GenerateResult result, generate(*plain_, i, 0));
    expected_.push_back({.ids = std::move(result.ids), .stop_reason = result.stop_reason});
  }
  return {};
}

Result<double> SetEvaluation::timed_plain(std::size_t index) {
  KAKEYA_ASSIGN_OR_RETURN(GenerateResult result, generate(*plain_, index, 0));
  const Output output{.ids = std::move(result.ids), .stop_reason = result.stop_reason};
  if (output != expected_[index]) differs_[index] = true;
  return result.decode_seconds;
}

Result<double> SetEvaluation::timed_speculative(std::size_t index) {
  const std::vector<TokenId>& prompt = set_.prompts[index].ids;
  const std::vector<TokenId>& plain = expected_[index].ids;
  script_.tokens.assign(prompt.begin(), prompt.end());
  script_.tokens.insert(script_.tokens.end(), plain.begin(), plain.end());
  KAKEYA_ASSIGN_OR_RETURN(GenerateResult result,
                          generate(*speculative_, index, options_.generate.draft_length));
  report_.rounds.add(result.rounds);
  Output output{.ids = std::move(result.ids), .stop_reason = result.stop_reason};
  if (output != expected_[index]) differs_[index] = true;
  if (speculative_outputs_.size() == index) speculative_outputs_.push_back(std::move(output));
  return result.decode_seconds;
}

Status SetEvaluation::pair() {
  for (std::size_t i = 0; i < set_.prompts.size(); ++i) {
    const bool speculative_first = i % 2 == 1;
    for (const bool speculative : {speculative_first, !speculative_first}) {
      KAKEYA_ASSIGN_OR_RETURN(const double seconds,
                              speculative ? timed_speculative(i) : timed_plain(i));
      (speculative ? report_.speculative_times : report_.plain_times).add(i, seconds);
    }
  }
  return {};
}

Status SetEvaluation::count_recall(const Tokenizer& tokenizer) {
  for (std::size_t i = 0; i < set_.prompts.size(); ++i) {
    const std::string& answer = set_.prompts[i].answer;
    if (answer.empty()) continue;
    const auto found = [&](const Output& output) {
      return contains_whole(tokenizer.decode(output.ids), answer);
    };
    ++report_.answers;
    if (found(expected_[i])) ++report_.plain_recall;
    if (found(speculative_outputs_[i])) ++report_.speculative_recall;
  }
  return {};
}

SpeculationReport SetEvaluation::report() && {
  report_.set = set_.name;
  report_.prompts = static_cast<std::int64_t>(set_.prompts.size());
  const auto append = [](std::vector<TokenId>& all, const std::vector<TokenId>& ids) {
    all.insert(all.end(), ids.begin(), ids.end());
  };
  for (std::size_t i = 0; i < set_.prompts.size(); ++i) {
    report_.prompt_tokens += static_cast<std::int64_t>(set_.prompts[i].ids.size());
    append(report_.plain_ids, expected_[i].ids);
    append(report_.speculative_ids, speculative_outputs_[i].ids);
    if (differs_[i]) report_.differing.push_back(set_.prompts[i].id);
  }
  report_.tokens = static_cast<std::int64_t>(report_.plain_ids.size());
  return std::move(report_);
}

Result<Report> run_set(EngineImpl& engine,
                       const PromptSet& set,
                       const SpeculationEvalOptions& options) {
  KAKEYA_ASSIGN_OR_RETURN(const auto evaluation, SetEvaluation::create(engine, set, options));
  KAKEYA_TRY(evaluation->plain_pass());
  for (int pair = 0; pair < options.pairs; ++pair) KAKEYA_TRY(evaluation->pair());
  KAKEYA_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, engine.tokenizer());
  KAKEYA_TRY(evaluation->count_recall(*tokenizer));
  return speculation_json(std::move(*evaluation).report());
}

}  // namespace

void SetTimes::add(std::size_t prompt, double seconds) {
  if (seconds_.size() <= prompt) seconds_.resize(prompt + 1);
  seconds_[prompt].push_back(seconds);
}

std::vector<double> SetTimes::pairs() const {
  std::vector<double> sums;
  for (const std::vector<double>& prompt : seconds_) {
    sums.resize(std::max(sums.size(), prompt.size()), 0.0);
    for (std::size_t pair = 0; pair < prompt.size(); ++pair) sums[pair] += prompt[pair];
  }
  return sums;
}

double SetTimes::steady() const {
  double sum = 0.0;
  for (const std::vector<double>& prompt : seconds_) sum += median(prompt);
  return sum;
}

std::vector<double> SpeculationReport::time_ratios() const {
  std::vector<double> ratios = speculative_times.pairs();
  const std::vector<double> plain = plain_times.pairs();
  for (std::size_t i = 0; i < ratios.size(); ++i) ratios[i] /= std::max(plain[i], kShortestTime);
  return ratios;
}

double SpeculationReport::steady_time_ratio() const {
  return speculative_times.steady() / std::max(plain_times.steady(), kShortestTime);
}

Result<SpeculationReport> evaluate_speculation(EngineImpl& engine,
                                               const PromptSet& set,
                                               const SpeculationEvalOptions& options) {
  KAKEYA_ASSIGN_OR_RETURN(const Report result,
                          PartJournal::result(options.journal, part_of(set.name, set.prompts),
                                              [&] { return run_set(engine, set, options); }));
  return parse_speculation(result);
}

}  // namespace kakeya::eval
