#include "eval/texts/text_sets.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "base/status.h"
#include "eval/command/eval_common.h"

namespace kakeya::cli {
namespace {

constexpr std::array kTextSets = {"wikitext2", "prose", "code"};

}  // namespace

void add_text_set_flags(CLI::App& command, TextSetFlags& flags) {
  CLI::Option* const texts =
      command.add_option("--texts", flags.texts, "wikitext2, prose, code (default: all)")
          ->delimiter(',')
          ->check(CLI::IsMember(std::vector<std::string>(kTextSets.begin(), kTextSets.end())))
          ->type_name("A,B,...");
  command.add_option("--file", flags.file, "A text file instead (- for standard input)")
      ->excludes(texts)
      ->type_name("FILE");
  command
      .add_option("--length", flags.length,
                  "Tokens that are run together, from nothing (default: 512)")
      ->check(CLI::Range(2, 1 << 24))
      ->type_name("N");
  command.add_option("--limit", flags.limit, "Only the first N texts of a set")
      ->check(CLI::Range(1, 1 << 30))
      ->type_name("N");
  command
      .add_option("--data", flags.data, "Folder of the texts (default: eval/data, as installed)")
      ->type_name("DIR");
}

Result<std::vector<eval::PromptSet>> read_text_sets(const Engine& engine,
                                                    const TextSetFlags& flags) {
  std::vector<eval::PromptSet> sets;
  const auto add = [&](const std::string& name, std::vector<eval::PromptText> texts) -> Status {
    if (flags.limit > 0 && std::ssize(texts) > flags.limit) {
      texts.resize(static_cast<std::size_t>(flags.limit));
    }
    KAKEYA_ASSIGN_OR_RETURN(eval::PromptSet set,
                            eval::encode_prompts(engine, name, texts, eval::PromptForm::kPlain));
    sets.push_back(std::move(set));
    return {};
  };
  if (!flags.file.empty()) {
    KAKEYA_ASSIGN_OR_RETURN(std::string text, read_text(flags.file));
    const std::string name = flags.file == "-" ? "standard input" : flags.file;
    KAKEYA_TRY(add(name, {{.id = name, .prompt = std::move(text), .answer = {}}}));
    return sets;
  }
  KAKEYA_ASSIGN_OR_RETURN(const std::string folder, data_folder(flags.data));
  for (const std::string name : kTextSets) {
    const bool chosen =
        flags.texts.empty() || std::ranges::find(flags.texts, name) != flags.texts.end();
    if (!chosen) continue;
    KAKEYA_ASSIGN_OR_RETURN(auto texts,
                            read_prompts(std::filesystem::path(folder) / (name + ".jsonl")));
    KAKEYA_TRY(add(name, std::move(texts)));
  }
  return sets;
}

}  // namespace kakeya::cli
