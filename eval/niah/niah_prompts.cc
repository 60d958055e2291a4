// The part of kakeya eval niah for prompts and replies, whoever is asked.
#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "base/status.h"
#include "cli/sha256.h"
#include "eval/niah/niah_flags.h"

namespace kakeya::cli {
namespace {

Result<std::vector<std::string>> read_haystack(const NiahFlags& flags) {
  if (!flags.file.empty()) {
    KAKEYA_ASSIGN_OR_RETURN(std::string text, read_text(flags.file));
    return std::vector<std::string>{std::move(text)};
  }
  KAKEYA_ASSIGN_OR_RETURN(const std::string folder, data_folder(flags.data));
  KAKEYA_ASSIGN_OR_RETURN(const auto prompts, read_prompts(std::filesystem::path(folder) /
                                                           (flags.haystack + ".jsonl")));
  std::vector<std::string> texts;
  for (const eval::PromptText& prompt : prompts) texts.push_back(prompt.prompt);
  return texts;
}

}  // namespace

Result<std::vector<eval::NeedlePrompt>> make_needle_prompts(const ModelText& text,
                                                            const NiahFlags& flags,
                                                            std::int64_t most_tokens) {
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<std::string> texts, read_haystack(flags));
  KAKEYA_ASSIGN_OR_RETURN(const auto maker,
                          eval::NeedlePrompts::create(text, texts, flags.task, flags.seed));
  std::vector<eval::NeedlePrompt> prompts;
  for (const std::int64_t length : flags.lengths) {
    if (most_tokens > 0 && length > most_tokens) {
      return invalid_argument("--lengths: expected at most {} tokens for this model, got {}",
                              most_tokens, length);
    }
    for (const std::int64_t depth : flags.depths) {
      for (std::int64_t index = 0; index < flags.prompts_of_a_place(); ++index) {
        KAKEYA_ASSIGN_OR_RETURN(eval::NeedlePrompt prompt, maker.make({length, depth, index}));
        prompts.push_back(std::move(prompt));
      }
    }
  }
  return prompts;
}

eval::NiahSample needle_sample(const eval::NeedlePrompt& prompt) {
  return {.place = prompt.place,
          .sha256 = ids_sha256(prompt.ids),
          .tokens = std::ssize(prompt.ids),
          .needle_at = prompt.sentences.front().at,
          .answers = std::ssize(prompt.answers),
          .replies = {}};
}

nlohmann::ordered_json needle_options_json(const NiahFlags& flags) {
  return {{"lengths", flags.lengths},
          {"depths", flags.depths},
          {"samples", flags.prompts_of_a_place()},
          {"needles", flags.task.needles},
          {"distractors", flags.task.distractors},
          {"hops", flags.task.hops},
          {"seed", flags.seed},
          {"max_tokens", flags.reply_tokens()},
          {"haystack", flags.file.empty() ? flags.haystack : flags.file}};
}

nlohmann::ordered_json needle_journal_json(const NiahFlags& flags) {
  nlohmann::ordered_json run = needle_options_json(flags);
  for (const char* name : {"lengths", "depths", "samples"}) run.erase(name);
  return run;
}

Status give_needle_report(const NiahFlags& flags,
                          const NiahReport& report,
                          const std::string& asked,
                          const std::string& head,
                          nlohmann::ordered_json json) {
  for (const eval::NiahSample& sample : report.samples) {
    json["samples"].push_back(eval::niah_sample_json(sample));
  }
  for (const eval::NiahClaim& claim : report.claims) {
    json["claims"].push_back(eval::niah_claim_json(claim));
  }
  if (!flags.svg.empty()) {
    const std::string title = fmt::format("{}, {}", json["model"].get<std::string>(), asked);
    KAKEYA_TRY(write_text(flags.svg, niah_svg(report, title)));
  }
  const std::string table =
      fmt::format("replies in which every answer was found; {}\n\n{}", head, format_niah(report));
  return give_report(flags.report, json, table);
}

}  // namespace kakeya::cli
