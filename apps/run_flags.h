// Flags of kakeya run, and what follows from them before a model is there.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "kakeya/options.h"
#include "kakeya/status.h"
#include "kakeya/text_generation.h"
#include "service/answer_plan.h"

namespace kakeya::cli {

struct RunFlags {
  ModelFlags model;
  std::vector<std::string> words;  // by position: the model, the prompt, or both
  std::string prompt;
  std::string prompt_file;
  std::string system;
  bool chat = false;
  bool raw = false;
  bool thinking = false;
  bool no_thinking = false;
  bool json = false;
  bool recommended = false;
  bool has_prompt = false;  // also an empty one
  TextOptions text;
  std::vector<std::string> logit_bias;
  std::string draft_length = "auto";
  std::string trace;
  std::string session;      // a file
  std::string json_schema;  // a file
  std::string grammar;      // a file
  std::string regex;
  std::string tools;  // a file
  std::string tool_choice = "auto";
  const CLI::App* command = nullptr;

  // True if the command has this option and it was on the command line.
  bool given(const char* option) const {
    const CLI::Option* const found = command->get_option_no_throw(option);
    return found != nullptr && found->count() > 0;
  }
};

void add_run_flags(CLI::App& command, RunFlags& flags);

// The part of the flags that replies are planned by. Errors: as read_text() and read_tools().
Result<service::AnswerOptions> answer_options(const RunFlags& flags);

// Takes `words` for the model and the prompt. One alone is the model if it is there or looks
// like a path. Errors: kInvalidArgument if they were named by flags, too.
Status take_words(RunFlags& flags);

// Flags that exclude each other, and files that cannot be written: rather now than when the reply
// is there.
Status check_flags(const RunFlags& flags);

// Adds --logit-bias to `sampling`.
Status parse_logit_bias(const std::vector<std::string>& entries, SamplingOptions& sampling);

// The publisher's sampling where no flag says otherwise.
void recommend(const RunFlags& flags, const SamplingOptions& recommended, SamplingOptions& own);

}  // namespace kakeya::cli
