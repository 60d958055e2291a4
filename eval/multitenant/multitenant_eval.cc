#include "eval/multitenant/multitenant_eval.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "kakeya/scheduler.h"
#include "runtime/session_impl.h"

namespace kakeya::eval {
namespace {

constexpr double kShortestTenantTime = 1e-9;

// A token came so many seconds after the request was asked.
void take_token(double seconds, TenantAnswer& answer) {
  if (answer.first_token_seconds == 0.0) {
    answer.first_token_seconds = seconds;
  } else {
    answer.longest_gap_seconds = std::max(answer.longest_gap_seconds, seconds - answer.seconds);
  }
  answer.seconds = seconds;
}

void take_result(const GenerateResult& result, TenantAnswer& answer) {
  answer.ids = result.ids;
  answer.stop_reason = stop_reason_name(result.stop_reason);
  answer.drafted = result.drafted;
  answer.accepted = result.accepted;
}

// One arm: its requests, and both ways to run them.
class TenantRun {
 public:
  TenantRun(EngineImpl& engine,
            std::span<const EvalPrompt> prompts,
            const TenantArm& arm,
            const TenantOptions& options)
      : engine_(engine), options_(options), prompts_(prompts.begin(), prompts.end()), arm_(arm) {
    report_.arm = arm;
    const auto shortest =
        std::ranges::min(prompts_, {}, [](const EvalPrompt& prompt) { return prompt.ids.size(); });
    for (EvalPrompt& prompt : prompts_) {
      if (arm.equal_lengths) prompt.ids.resize(shortest.ids.size());
      report_.requests.push_back({.prompt = prompt.id, .prompt_tokens = std::ssize(prompt.ids)});
    }
  }

  // A run of each kind; every other time the first one is the other one. `counts`: their times do.
  Status pair(bool solo_first, bool counts) {
    double solo_seconds = 0.0;
    double together_seconds = 0.0;
    std::vector<TenantAnswer> solo;
    std::vector<TenantAnswer> together;
    if (counts && report_.solo_seconds.empty()) begin_to_count();
    if (solo_first) solo = ask_alone(solo_seconds);
    KAKEYA_ASSIGN_OR_RETURN(together, ask_together(together_seconds));
    if (!solo_first) solo = ask_alone(solo_seconds);
    for (std::size_t i = 0; i < solo.size(); ++i) {
      compare_tenant(report_.requests[i], together[i], solo[i], options_);
    }
    if (!counts) return {};
    report_.solo_seconds.push_back(std::max(solo_seconds, kShortestTenantTime));
    report_.together_seconds.push_back(std::max(together_seconds, kShortestTenantTime));
    return {};
  }

  TenantArmReport report() && { return std::move(report_); }

 private:
  // Forgets the results of the pair before, but for differences and errors: the workspace grew in
  // it, too.
  void begin_to_count() {
    report_.alone_bytes = 0;
    report_.together_bytes = 0;
    for (TenantRequest& request : report_.requests) {
      if (request.equal()) request.sha256.clear();
    }
  }

  GenerateOptions generate_options(std::size_t index) const {
    GenerateOptions generate = {.max_tokens = options_.max_tokens, .draft_length = 0};
    if (arm_.sampled) {
      generate.sampling = options_.sampling;
      generate.sampling.seed += index;
    }
    if (arm_.drafts) generate.draft_length = options_.draft_length;
    generate.ignore_model_stop_ids = arm_.equal_lengths;
    return generate;
  }

  std::vector<TenantAnswer> ask_alone(double& seconds) {
    std::vector<TenantAnswer> answers(prompts_.size());
    const Stopwatch watch;
    for (std::size_t i = 0; i < prompts_.size(); ++i) {
      try {
        const Status asked = ask_one_alone(i, answers[i]);
        if (!asked) answers[i].error = asked.error().message();
      } catch (const std::exception& thrown) {
        answers[i].error = thrown.what();
      }
    }
    seconds = watch.seconds();
    return answers;
  }

  Status ask_one_alone(std::size_t index, TenantAnswer& answer) {
    const Stopwatch watch;
    const std::uint64_t before = engine_.footprint().total_reserved();
    KAKEYA_ASSIGN_OR_RETURN(const auto session, engine_.create_session(options_.session));
    KAKEYA_TRY(session->append(prompts_[index].ids));
    KAKEYA_ASSIGN_OR_RETURN(const GenerateResult result,
                            session->generate(generate_options(index), [&](const TokenEvent&) {
                              take_token(watch.seconds(), answer);
                              return true;
                            }));
    take_result(result, answer);
    see_bytes(before, report_.alone_bytes);
    return {};
  }

  Result<std::vector<TenantAnswer>> ask_together(double& seconds) {
    const auto sessions = static_cast<std::int64_t>(prompts_.size());
    std::vector<TenantAnswer> answers(prompts_.size());
    KAKEYA_ASSIGN_OR_RETURN(
        const auto scheduler,
        engine_.create_scheduler({.max_sequences = sessions,
                                  .max_logit_rows = std::max<std::int64_t>(128, sessions * 16)}));
    const std::uint64_t before = engine_.footprint().total_reserved();
    const Stopwatch watch;
    for (std::size_t i = 0; i < prompts_.size(); ++i) {
      const auto added = scheduler->add(make_request(i, watch, answers[i]));
      if (!added) answers[i].error = added.error().message();
    }
    bool goes_on = true;
    while (goes_on) {
      KAKEYA_ASSIGN_OR_RETURN(goes_on, scheduler->step());
      see_bytes(before, report_.together_bytes);
    }
    seconds = watch.seconds();
    return answers;
  }

  // `watch` and `answer` outlive it.
  Request make_request(std::size_t index, const Stopwatch& watch, TenantAnswer& answer) const {
    Request request;
    request.prompt = prompts_[index].ids;
    request.generate = generate_options(index);
    request.session = options_.session;
    request.on_token = [&watch, &answer](const TokenEvent&) {
      take_token(watch.seconds(), answer);
      return true;
    };
    request.on_end = [&answer](RequestId, const RequestResult& result) {
      take_result(result.generated, answer);
      answer.queue_seconds = result.queue_seconds;
      if (!result.status) answer.error = result.status.error().message();
    };
    return request;
  }

  // Raises `most` to what the ledger holds more than before, if that is the most so far.
  void see_bytes(std::uint64_t before, std::uint64_t& most) const {
    const std::uint64_t now = engine_.footprint().total_reserved();
    most = std::max(most, now - std::min(now, before));
  }

  EngineImpl& engine_;
  const TenantOptions& options_;
  std::vector<EvalPrompt> prompts_;
  TenantArm arm_;
  TenantArmReport report_;
};

}  // namespace

std::optional<std::int64_t> first_difference(std::span<const TokenId> a,
                                             std::span<const TokenId> b) {
  const auto [in_a, in_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  if (in_a == a.end() && in_b == b.end()) return std::nullopt;
  return in_a - a.begin();
}

void compare_tenant(TenantRequest& request,
                    const TenantAnswer& together,
                    const TenantAnswer& solo,
                    const TenantOptions& options) {
  const std::string& failed = together.error.empty() ? solo.error : together.error;
  if (request.error.empty()) request.error = failed.substr(0, 1000);
  if (!failed.empty()) return;
  const auto differs_at = first_difference(together.ids, solo.ids);
  const bool differs_now = differs_at && !request.differs_at;
  if (differs_now) request.differs_at = differs_at;
  // Where one pair differs its answers are shown.
  if (!request.sha256.empty() && !differs_now) return;
  request.together = together;
  request.together.tokens = std::ssize(together.ids);
  request.sha256 = options.hash(together.ids);
  request.solo_sha256 = options.hash(solo.ids);
}

Result<std::vector<TenantArmReport>> run_tenants(EngineImpl& engine,
                                                 std::span<const EvalPrompt> prompts,
                                                 std::span<const TenantArm> arms,
                                                 const TenantOptions& options) {
  if (prompts.empty()) return invalid_argument("expected a prompt or more, got none");
  KAKEYA_TRY(validate_generation({.max_tokens = options.max_tokens,
                                  .sampling = options.sampling,
                                  .draft_length = options.draft_length},
                                 engine.vocab_size()));
  const std::int64_t total = std::ssize(arms) * (options.pairs + 1);
  std::int64_t done = 0;
  std::vector<TenantArmReport> reports;
  for (const TenantArm& arm : arms) {
    const auto run_arm = [&]() -> Result<Report> {
      TenantRun run(engine, prompts, arm, options);
      for (int pair = -1; pair < options.pairs; ++pair) {
        KAKEYA_TRY(run.pair(pair % 2 == 0, pair >= 0));
        if (options.on_progress) options.on_progress(++done, total);
      }
      Report json;
      write_fields(json, std::move(run).report(), WrittenFor::kJournal);
      return json;
    };
    KAKEYA_ASSIGN_OR_RETURN(
        const Report result,
        PartJournal::result(options.journal, part_of(arm.name, prompts), run_arm));
    KAKEYA_ASSIGN_OR_RETURN(TenantArmReport report,
                            read_fields<TenantArmReport>(result, WrittenFor::kJournal));
    reports.push_back(std::move(report));
    done = std::ssize(reports) * (options.pairs + 1);
    if (options.on_progress) options.on_progress(done, total);
  }
  return reports;
}

}  // namespace kakeya::eval
