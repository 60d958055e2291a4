// kakeya eval niah with --url: the prompts are asked of a server, as texts.
#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "cli/sha256.h"
#include "eval/niah/niah_flags.h"
#include "eval/niah/niah_journal.h"
#include "eval/prompts/served_text.h"
#include "runtime/model_text.h"

namespace kakeya::cli {
namespace {

// None without --resume.
Result<std::optional<eval::NiahJournal>> open_journal(const NiahFlags& flags,
                                                      const std::string& model) {
  if (flags.resume.empty()) return std::nullopt;
  nlohmann::ordered_json run = needle_journal_json(flags);
  run["server"] = flags.server.url;
  run["model"] = model;
  return eval::NiahJournal::open(flags.resume, journal_run_json(run));
}

eval::NiahReply reply_of(const eval::NeedlePrompt& prompt, const eval::ServedText& answer) {
  return {.mode = eval::kServedMode,
          .sha256 = text_sha256(answer.text),
          .found = eval::answers_in(prompt, answer.text),
          .seconds = answer.seconds};
}

// Takes over what the journal has, and asks the rest. Samples are in the order of the prompts.
Result<std::vector<eval::NiahSample>> ask_all(const std::vector<eval::NeedlePrompt>& prompts,
                                              const NiahFlags& flags,
                                              const ServedModel& model) {
  KAKEYA_ASSIGN_OR_RETURN(auto journal, open_journal(flags, model.name));
  std::int64_t tokens = 0;
  for (const eval::NeedlePrompt& prompt : prompts) tokens += std::ssize(prompt.ids);
  ReplyProgress progress("replies", std::ssize(prompts), tokens);
  std::vector<eval::NiahSample> samples;
  std::vector<std::string> messages;
  std::vector<std::size_t> places;  // of their samples
  for (const eval::NeedlePrompt& prompt : prompts) {
    eval::NiahSample& sample = samples.emplace_back(needle_sample(prompt));
    const eval::NiahReply* known = nullptr;
    if (journal) {
      KAKEYA_ASSIGN_OR_RETURN(known, journal->find(prompt.place, eval::kServedMode, sample.sha256));
    }
    if (known != nullptr) {
      sample.replies.push_back(*known);
      progress.add(sample.tokens, false);
      continue;
    }
    messages.push_back(prompt.message);
    places.push_back(samples.size() - 1);
  }
  const auto ask = [&](const std::string& message) {
    const Stopwatch watch;
    auto answer = ask_served_model(model, message, flags.reply_tokens());
    if (answer) answer->seconds = watch.seconds();  // with the prompt
    return answer;
  };
  const auto take = [&](std::size_t index, Result<eval::ServedText> answer) -> Status {
    if (!answer) return Unexpected(std::move(answer.error()));
    eval::NiahSample& sample = samples[places[index]];
    sample.replies.push_back(reply_of(prompts[places[index]], *answer));
    if (journal) KAKEYA_TRY(journal->add(sample.place, sample.sha256, sample.replies.back()));
    progress.add(sample.tokens, true);
    return {};
  };
  KAKEYA_TRY(eval::ask_in_parallel(messages, flags.parallel, ask, take));
  return samples;
}

}  // namespace

Status eval_served_niah(const NiahFlags& flags) {
  KAKEYA_ASSIGN_OR_RETURN(const std::string folder, model_path(flags.model));
  KAKEYA_ASSIGN_OR_RETURN(const ModelText text, ModelText::load(folder));
  KAKEYA_ASSIGN_OR_RETURN(const auto prompts, make_needle_prompts(text, flags, 0));
  KAKEYA_ASSIGN_OR_RETURN(const ServedModel model,
                          open_served_model(flags.server, flags.model_name));
  NiahReport report{.modes = {eval::kServedMode}, .lengths = flags.lengths, .depths = flags.depths};
  KAKEYA_ASSIGN_OR_RETURN(report.samples, ask_all(prompts, flags, model));
  report.claims = eval::niah_claims(report.samples, report.modes, report.lengths);

  nlohmann::ordered_json json = provenance_json("kakeya.eval.served-niah/1", flags.conditions);
  json["model"] = model.name;
  json["server"] = flags.server.url;
  json["options"] = needle_options_json(flags);
  json["options"]["parallel"] = flags.parallel;
  json["modes"].push_back({{"mode", eval::kServedMode}});
  const std::string head =
      fmt::format("{} at {}, {} at a time", model.name, flags.server.url, flags.parallel);
  return give_needle_report(flags, report, flags.server.url, head, std::move(json));
}

}  // namespace kakeya::cli
