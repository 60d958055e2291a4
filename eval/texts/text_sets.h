// Texts that an evaluation runs: public sets, or the user's file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/command.h"
#include "eval/prompts/prompt_set.h"

namespace kakeya::cli {

struct TextSetFlags {
  std::vector<std::string> texts;  // names of sets; empty: all
  std::string file;                // instead of sets
  std::string data;
  std::int64_t length = 512;  // tokens of a window
  std::int64_t limit = 0;     // texts of a set; 0: all
};

// --texts, --file, --length, --limit and --data.
void add_text_set_flags(CLI::App& command, TextSetFlags& flags);

// The texts as tokens of the engine; a plain file is one text. Errors: as read_prompts and
// read_text.
Result<std::vector<eval::PromptSet>> read_text_sets(const Engine& engine,
                                                    const TextSetFlags& flags);

}  // namespace kakeya::cli
