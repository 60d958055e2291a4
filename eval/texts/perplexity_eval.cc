#include "eval/texts/perplexity_eval.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "eval/report/field_reader.h"

namespace kakeya::eval {
namespace {

Result<Report> score_window(Engine& engine,
                            const EvalPrompt& window,
                            const SessionOptions& session_options,
                            Counted counted) {
  const Stopwatch watch;
  KAKEYA_ASSIGN_OR_RETURN(const auto session, engine.create_session(session_options));
  const std::span<const TokenId> ids = window.ids;
  KAKEYA_TRY(session->append(ids.first(1)));
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<TokenLogprobs> all, session->score(ids.subspan(1)));
  const std::span<const TokenLogprobs> scores =
      std::span(all).subspan(counted == Counted::kAll ? 0 : ids.size() / 2);
  double nll = 0.0;
  for (const TokenLogprobs& each : scores) nll -= static_cast<double>(each.token.logprob);
  return Report{{"tokens", scores.size()}, {"nll", nll}, {"seconds", watch.seconds()}};
}

// Runs a window, unless the journal has it.
Status add_window(Engine& engine,
                  const EvalPrompt& window,
                  const SessionOptions& session,
                  const PerplexityOptions& options,
                  PerplexityReport& report) {
  KAKEYA_ASSIGN_OR_RETURN(
      const Report result,
      PartJournal::result(options.journal,
                          part_of(report.set, std::ssize(report.windows), window.ids),
                          [&] { return score_window(engine, window, session, options.counted); }));
  WindowScore score{.text = window.id};
  double seconds = 0.0;
  KAKEYA_TRY(FieldReader(result)
                 .take("tokens", score.tokens)
                 .take("nll", score.nll)
                 .take("seconds", seconds)
                 .status("a window's score"));
  report.windows.push_back(std::move(score));
  report.seconds += seconds;
  return {};
}

}  // namespace

std::vector<EvalPrompt> cut_windows(const PromptSet& texts, TokenId bos_id, std::int64_t window) {
  std::vector<EvalPrompt> windows;
  for (const EvalPrompt& text : texts.prompts) {
    std::span<const TokenId> rest = text.ids;
    const bool begins = bos_id >= 0;
    if (begins && !rest.empty() && rest.front() == bos_id) rest = rest.subspan(1);
    const std::int64_t room = window - (begins ? 1 : 0);
    while (!rest.empty() && 2 * std::ssize(rest) >= room) {
      EvalPrompt next{.id = text.id, .ids = {}, .answer = {}};
      if (begins) next.ids.push_back(bos_id);
      const auto count = static_cast<std::size_t>(std::min<std::int64_t>(room, std::ssize(rest)));
      next.ids.insert(next.ids.end(), rest.begin(),
                      rest.begin() + static_cast<std::ptrdiff_t>(count));
      rest = rest.subspan(count);
      if (next.ids.size() >= 2) windows.push_back(std::move(next));
    }
  }
  return windows;
}

std::vector<EvalPrompt> cut_whole_windows(const PromptSet& texts,
                                          TokenId bos_id,
                                          std::int64_t window) {
  std::vector<EvalPrompt> windows;
  const auto length = static_cast<std::size_t>(window);
  for (const EvalPrompt& text : texts.prompts) {
    for (std::span<const TokenId> rest = text.ids; rest.size() >= length;
         rest = rest.subspan(length)) {
      EvalPrompt next{.id = text.id, .ids = {rest.begin(), rest.begin() + window}, .answer = {}};
      if (bos_id >= 0) next.ids.front() = bos_id;
      windows.push_back(std::move(next));
    }
  }
  return windows;
}

Result<std::vector<EvalPrompt>> windows_of(const PromptSet& texts,
                                           TokenId bos_id,
                                           std::int64_t window,
                                           Counted counted) {
  const bool whole = counted == Counted::kSecondHalf;
  const std::int64_t least = whole ? 4 : 2;  // tokens of which one counts
  if (window < least) {
    return invalid_argument("a window must have {} tokens or more but has {}", least, window);
  }
  std::vector<EvalPrompt> windows =
      whole ? cut_whole_windows(texts, bos_id, window) : cut_windows(texts, bos_id, window);
  if (windows.empty()) {
    return invalid_argument("{}: expected texts of {} of {} tokens or more, got none", texts.name,
                            whole ? "a window" : "half a window", window);
  }
  return windows;
}

Result<PerplexityReport> evaluate_perplexity(Engine& engine,
                                             const PromptSet& texts,
                                             const PerplexityOptions& options) {
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<EvalPrompt> windows,
                          windows_of(texts, engine.bos_id(), options.window, options.counted));
  SessionOptions session = options.session;
  session.context = options.window;
  session.drafting = false;
  PerplexityReport report{.set = texts.name, .windows = {}, .seconds = 0.0};
  for (const EvalPrompt& window : windows) {
    const Status added = add_window(engine, window, session, options, report);
    if (!added) return Unexpected(added.error().with_context(texts.name + " " + window.id));
    if (options.on_progress) options.on_progress(std::ssize(report.windows), std::ssize(windows));
  }
  return report;
}

}  // namespace kakeya::eval
