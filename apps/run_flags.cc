#include "run_flags.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "cli/failure.h"
#include "cli/model_path.h"
#include "cli/report.h"
#include "kakeya/status_macros.h"
#include "tools_file.h"

namespace kakeya::cli {
namespace {

void add_sampling_flags(CLI::App& command, RunFlags& flags) {
  SamplingOptions& sampling = flags.text.generate.sampling;
  const std::string group = "Sampling";
  command.add_option("--temperature", sampling.temperature, "0: greedy (default)")->group(group);
  command.add_option("--top-k", sampling.top_k, "Keep the K likeliest; 0: off")->group(group);
  command.add_option("--top-p", sampling.top_p, "Keep the likeliest that make up P; 1: off")
      ->group(group);
  command
      .add_option("--min-p", sampling.min_p,
                  "Drop what is less likely than P times the best; 0: off")
      ->group(group);
  command
      .add_option("--repetition-penalty", sampling.repetition_penalty,
                  "Divide the logits of seen tokens; 1: off")
      ->group(group);
  command
      .add_option("--presence-penalty", sampling.presence_penalty,
                  "Subtract once for a generated token")
      ->group(group);
  command
      .add_option("--frequency-penalty", sampling.frequency_penalty,
                  "Subtract for each time it was generated")
      ->group(group);
  command.add_option("--logit-bias", flags.logit_bias, "Add to one token's logit; repeatable")
      ->allow_extra_args(false)
      ->type_name("ID:BIAS")
      ->group(group);
  command.add_option("--seed", sampling.seed, "Same seed, same text")->group(group);
  command
      .add_flag(
          "--recommended", flags.recommended,
          "The publisher's sampling, from generation_config.json, where no other flag is given")
      ->group(group);
}

void add_speculation_flags(CLI::App& command, RunFlags& flags) {
  add_draft_flags(command, flags.model);
  const std::string group = "Speculation";
  add_draft_length_flag(command, flags.draft_length);
  command
      .add_option("--trace", flags.trace,
                  "Write the rounds as Chrome trace events, for chrome://tracing")
      ->type_name("FILE.json")
      ->group(group);
}

void add_format_flags(CLI::App& command, RunFlags& flags) {
  const std::string group = "Structured output";
  auto* schema =
      command
          .add_option("--json-schema", flags.json_schema,
                      "Reply with JSON that this JSON schema allows: itself, or a file; -: "
                      "standard input")
          ->type_name("SCHEMA|FILE")
          ->group(group);
  auto* grammar = command
                      .add_option("--grammar", flags.grammar,
                                  "Reply with what this grammar allows, written as llama.cpp's "
                                  "GBNF: itself, or a file; -: standard input")
                      ->excludes(schema)
                      ->type_name("GRAMMAR|FILE")
                      ->group(group);
  command
      .add_option("--regex", flags.regex, "Reply with a text that this regular expression matches")
      ->excludes(schema)
      ->excludes(grammar)
      ->type_name("REGEX")
      ->group(group);
}

void add_tool_flags(CLI::App& command, RunFlags& flags) {
  const std::string group = "Tools";
  auto* tools =
      command
          .add_option("--tools", flags.tools,
                      "Tools that the reply may call, as OpenAI's API has them; calls are "
                      "printed as JSON, one a line; -: standard input")
          ->type_name("FILE")
          ->group(group);
  command
      .add_option(
          "--tool-choice", flags.tool_choice,
          "auto: it may call them (default); required: it does nothing else; NAME: it calls "
          "this one")
      ->needs(tools)
      ->type_name("CHOICE")
      ->group(group);
}

// True for a schema or a grammar itself, as llama.cpp's flags of these names take it: no file's
// name begins or reads so.
bool is_form(const std::string& given) {
  const std::size_t first = given.find_first_not_of(" \t\r\n");
  return (first != std::string::npos && given[first] == '{') ||
         given.find("::=") != std::string::npos;
}

// The schema or grammar that was given, or that of a file.
Result<std::string> read_form(const char* flag, const std::string& given) {
  if (is_form(given)) return given;
  auto text = read_text(given);
  if (text) return text;
  return failure(text.error().code(), "{}: expected its text, a file, or - for standard input: {}",
                 flag, text.error().message());
}

Result<service::AnswerFormat> answer_format(const RunFlags& flags) {
  using Kind = service::AnswerFormat::Kind;
  service::AnswerFormat format;
  if (flags.given("--regex")) {
    if (flags.regex.empty()) return bad_usage("--regex: expected an expression, got nothing");
    format.kind = Kind::kRegex;
    format.text = flags.regex;
  } else if (flags.given("--json-schema")) {
    format.kind = Kind::kJsonSchema;
    format.schema.strict = false;  // what is not enforced is told
    KAKEYA_ASSIGN_OR_RETURN(format.text, read_form("--json-schema", flags.json_schema));
  } else if (flags.given("--grammar")) {
    format.kind = Kind::kGrammar;
    KAKEYA_ASSIGN_OR_RETURN(format.text, read_form("--grammar", flags.grammar));
  }
  return format;
}

// Fails where two texts would come from standard input, of which one would get nothing.
Status check_standard_input(const RunFlags& flags) {
  std::vector<std::string> readers;
  for (const auto& [flag, file] :
       {std::pair("--json-schema", &flags.json_schema), std::pair("--grammar", &flags.grammar),
        std::pair("--tools", &flags.tools)}) {
    if (*file == "-") readers.emplace_back(flag);
  }
  const bool has_prompt_file = !flags.prompt_file.empty() && flags.prompt_file != "-";
  if (!flags.has_prompt && !has_prompt_file)
    readers.emplace_back(flags.chat ? "--chat" : "the prompt");
  if (readers.size() < 2) return {};
  return bad_usage("{} and {} would both be read from standard input: give a file for one of them",
                   readers[0], readers[1]);
}

Status take_tools(const RunFlags& flags, service::AnswerOptions& options) {
  KAKEYA_ASSIGN_OR_RETURN(ToolsFile file, read_tools(flags.tools));
  options.tools = std::move(file.tools);
  if (flags.tool_choice == "auto") return {};
  options.must_call = true;
  if (flags.tool_choice == "required") return {};
  if (std::ranges::find(file.names, flags.tool_choice) == file.names.end()) {
    return bad_usage("--tool-choice: expected auto, required or a tool's name, got '{}'",
                     flags.tool_choice);
  }
  options.only_tool = flags.tool_choice;
  return {};
}

}  // namespace

Result<service::AnswerOptions> answer_options(const RunFlags& flags) {
  service::AnswerOptions options = {.is_chat = !flags.raw,
                                    .stop_strings = flags.text.stop_strings,
                                    .ignore_eos = flags.text.generate.ignore_model_stop_ids};
  if (flags.thinking || flags.no_thinking) options.thinking = flags.thinking;
  KAKEYA_ASSIGN_OR_RETURN(options.format, answer_format(flags));
  if (flags.given("--tools")) KAKEYA_TRY(take_tools(flags, options));
  return options;
}

// "123:-1.5" -> (123, -1.5)
Status parse_logit_bias(const std::vector<std::string>& entries, SamplingOptions& sampling) {
  for (const std::string& entry : entries) {
    TokenId id = 0;
    float bias = 0.0F;
    char rest = 0;
    const char* end = entry.data() + entry.size();
    const auto parsed = std::from_chars(entry.data(), end, id);
    const bool has_id = parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == ':';
    if (!has_id || std::sscanf(parsed.ptr + 1, "%f%c", &bias, &rest) != 1) {
      return bad_usage("--logit-bias must look like ID:BIAS (106:-2.5) but is '{}'", entry);
    }
    sampling.logit_bias.emplace_back(id, bias);
  }
  return {};
}

namespace {

// True for a word that is, or is meant for, a model's folder, file or name.
bool names_model(const std::string& word) {
  std::error_code ignored;
  if (std::filesystem::exists(word, ignored)) return true;
  const bool is_one_word = word.find_first_of(" \t\n") == std::string::npos;
  return is_one_word &&
         (word.ends_with(".gguf") || word.find('/') != std::string::npos || is_model_here(word));
}

}  // namespace

Status take_words(RunFlags& flags) {
  flags.has_prompt = flags.given("--prompt");
  if (flags.words.empty()) return {};
  if (flags.words.size() > 2) {
    return bad_usage("expected a model and a prompt, got {} words: put the prompt in quotes",
                     flags.words.size());
  }
  const bool has_model = flags.words.size() == 2 || names_model(flags.words.front());
  if (has_model) {
    if (flags.given("--model")) {
      return bad_usage("expected one model, got --model {} and {}", flags.model.model,
                       flags.words.front());
    }
    flags.model.model = flags.words.front();
    if (flags.words.size() == 1) return {};
  }
  const std::string& prompt = flags.words.back();
  for (const char* other : {"--prompt", "--prompt-file", "--chat"}) {
    if (flags.given(other)) {
      return bad_usage("{} and the prompt '{}' exclude each other", other, prompt);
    }
  }
  flags.prompt = prompt;
  flags.has_prompt = true;
  return {};
}

Status check_flags(const RunFlags& flags) {
  constexpr const char* kPairs[][2] = {{"--chat", "--raw"},
                                       {"--chat", "--trace"},
                                       {"--chat", "--prompt"},
                                       {"--chat", "--prompt-file"},
                                       {"--raw", "--system"},
                                       {"--raw", "--thinking"},
                                       {"--raw", "--no-thinking"},
                                       {"--raw", "--chat-template"},
                                       {"--tools", "--raw"},
                                       {"--tools", "--chat"},
                                       {"--tools", "--session"},
                                       {"--tools", "--ignore-eos"},
                                       {"--ignore-eos", "--json-schema"},
                                       {"--ignore-eos", "--grammar"},
                                       {"--ignore-eos", "--regex"}};
  for (const auto& [one, other] : kPairs) {
    if (flags.given(one) && flags.given(other)) {
      return bad_usage("{} and {} exclude each other", one, other);
    }
  }
  KAKEYA_TRY(check_standard_input(flags));
  if (!flags.chat && flags.given("--prompt-cache")) {
    return bad_usage("--prompt-cache takes --chat: one answer has nothing to start from");
  }
  if (!flags.chat && flags.given("--prompt-cache-dir")) {
    return bad_usage("--prompt-cache-dir takes --chat: one answer has nothing to start from");
  }
  if (!flags.json && flags.given("--logprobs")) {
    return bad_usage("--logprobs takes --json, which prints them");
  }
  KAKEYA_ASSIGN_OR_RETURN(const std::int64_t length, parse_draft_length(flags.draft_length));
  if (length > 0 && flags.model.draft == "none") {
    return bad_usage("--draft-length {} takes something that drafts, got --draft none", length);
  }
  KAKEYA_TRY(check_session_flags(flags.model));
  return flags.trace.empty() ? Status() : check_writable(flags.trace);
}

void recommend(const RunFlags& flags, const SamplingOptions& recommended, SamplingOptions& own) {
  const auto fill = [&](const char* flag, auto SamplingOptions::*field) {
    if (!flags.given(flag)) own.*field = recommended.*field;
  };
  fill("--temperature", &SamplingOptions::temperature);
  fill("--top-k", &SamplingOptions::top_k);
  fill("--top-p", &SamplingOptions::top_p);
  fill("--min-p", &SamplingOptions::min_p);
  fill("--repetition-penalty", &SamplingOptions::repetition_penalty);
  fill("--presence-penalty", &SamplingOptions::presence_penalty);
  fill("--frequency-penalty", &SamplingOptions::frequency_penalty);
  own.logit_bias = recommended.logit_bias;
}

void add_run_flags(CLI::App& command, RunFlags& flags) {
  constexpr const char* kConversation = "Conversation";
  flags.command = &command;
  command
      .add_option("text", flags.words,
                  "The prompt, as --prompt; before it a model, as --model: run DIR TEXT")
      ->type_name("[DIR] [TEXT]");
  add_leading_flags(command, flags.model);
  add_pull_flag(command, flags.model.pull);
  auto* prompt = command.add_option("-p,--prompt", flags.prompt, "The prompt")->type_name("TEXT");
  command
      .add_option(
          "-f,--prompt-file", flags.prompt_file,
          "Read it from a file, but for the end of its last line (--raw: all of it); - or nothing: "
          "standard input")
      ->excludes(prompt)
      ->type_name("FILE");
  command.add_flag("--chat", flags.chat, "A conversation; each line of input is a message");
  command.add_option("--system", flags.system, "System message of the conversation")
      ->type_name("TEXT");
  command
      .add_option("-n,--max-tokens", flags.text.generate.max_tokens,
                  "Most tokens of a reply (default: 256)")
      ->type_name("N");
  command.add_flag("--ignore-eos", flags.text.generate.ignore_model_stop_ids,
                   "Go on after the model's end of a reply, to --max-tokens");
  command.add_flag("--json", flags.json,
                   "Print one JSON object instead of text; with --chat one a line for each reply");
  command.add_flag("--raw", flags.raw, "No chat template: continue the text as it is")
      ->group(kConversation);
  auto* thinking = command
                       .add_flag("--thinking", flags.thinking,
                                 "Let the model think before it answers, by its template; "
                                 "default: as the publisher has it")
                       ->group(kConversation);
  command.add_flag("--no-thinking", flags.no_thinking, "Have it answer at once")
      ->excludes(thinking)
      ->group(kConversation);
  command.add_option("--stop", flags.text.stop_strings, "End before this text; repeatable")
      ->allow_extra_args(false)
      ->type_name("TEXT")
      ->group(kConversation);
  command
      .add_option("--session", flags.session,
                  "Go on from this file if it exists, and write it after each reply")
      ->type_name("FILE")
      ->group(kConversation);
  command
      .add_option("--logprobs", flags.text.generate.top_logprobs,
                  "With --json: the log-probability of each token, and of the N likeliest there")
      ->type_name("N")
      ->group("Sampling");
  add_prompt_cache_flag(command, flags.model);
  add_chat_template_flag(command, flags.model);
  add_sampling_flags(command, flags);
  add_format_flags(command, flags);
  add_tool_flags(command, flags);
  add_speculation_flags(command, flags);
  add_model_flags(command, flags.model);
}

}  // namespace kakeya::cli
