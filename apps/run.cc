// kakeya run: one prompt, or a conversation.
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "command.h"
#include "failure.h"
#include "generate_apart.h"
#include "kakeya/engine.h"
#include "kakeya/text_generation.h"
#include "output.h"
#include "report.h"
#include "session_file.h"
#include "terminal.h"

namespace kakeya::cli {
namespace {

struct RunFlags {
  ModelFlags model;
  std::string prompt;
  std::string prompt_file;
  std::string system;
  bool chat = false;
  bool raw = false;
  bool thinking = false;
  bool no_thinking = false;
  bool json = false;
  bool recommended = false;
  TextOptions text;
  std::vector<std::string> logit_bias;
  std::string draft_length = "auto";
  std::string trace;
  std::string session;  // a file
  const CLI::App* command = nullptr;

  // Whether this option was on the command line.
  bool given(const char* option) const { return command->count(option) > 0; }
};

// Nothing: as the model's publisher has it.
std::optional<bool> thinking_of(const RunFlags& flags) {
  if (!flags.thinking && !flags.no_thinking) return {};
  return flags.thinking;
}

// One exchange: what went in, what came out.
struct Turn {
  std::vector<TokenId> prompt_ids;
  std::int64_t kept_tokens = 0;  // of the prompt, still there from the turn before
  TextResult result;
  std::string thought = {};
};

// The loaded model and the running conversation.
class Runner {
 public:
  Runner(const RunFlags& flags,
         std::unique_ptr<Engine> engine,
         std::unique_ptr<Session> session,
         const Tokenizer& tokenizer)
      : flags_(flags),
        engine_(std::move(engine)),
        session_(std::move(session)),
        tokenizer_(tokenizer),
        file_(flags.session) {
    if (!flags.system.empty()) messages_.push_back({"system", flags.system});
  }

  // Goes on from flags.session, if it is given and there is such a file.
  Status restore();
  // Exit codes of the program, also of what follows.
  int one_shot(const std::string& prompt);
  int chat();

 private:
  Result<std::vector<TokenId>> encode_prompt(const std::string& prompt);
  Result<std::vector<TokenId>> encode(std::string_view text,
                                      std::span<const TextRange> plain) const;
  Status check_length(std::string_view text) const;
  Unexpected too_long(std::size_t bytes) const;
  Result<Turn> take_turn(const std::string& prompt);
  // Writes the session's file, if there is one.
  Status save();
  // Forgets the conversation, and its file.
  Status clear();
  // Prints a reply, as JSON with `indent`.
  void show(const Turn& turn, int indent);

  const RunFlags& flags_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Session> session_;
  const Tokenizer& tokenizer_;
  std::vector<ChatMessage> messages_;
  SessionFile file_;
  InterruptGuard interrupt_;
};

Result<std::vector<TokenId>> Runner::encode_prompt(const std::string& prompt) {
  if (flags_.raw) {
    KAKEYA_ASSIGN_OR_RETURN(std::vector<TokenId> ids, encode(prompt, {}));
    const TokenId bos = engine_->bos_id();
    const std::span<const TokenId> held = session_->tokens();  // restored
    if (bos >= 0 && held.empty() && (ids.empty() || ids.front() != bos))
      ids.insert(ids.begin(), bos);
    ids.insert(ids.begin(), held.begin(), held.end());
    return ids;
  }
  KAKEYA_TRY(check_length(prompt));
  messages_.push_back({"user", prompt});
  KAKEYA_ASSIGN_OR_RETURN(
      const ChatPrompt chat,
      engine_->apply_chat_template(messages_, {.enable_thinking = thinking_of(flags_)}));
  return encode(chat.text, chat.plain);
}

// Ids beyond the context are not made, so that a text's memory is bounded by the session's size.
Result<std::vector<TokenId>> Runner::encode(std::string_view text,
                                            std::span<const TextRange> plain) const {
  const auto context = static_cast<std::size_t>(session_->context());
  auto ids = tokenizer_.encode(text, {.most_tokens = context, .plain = plain});
  if (!ids && ids.error().code() == StatusCode::kResourceExhausted) return too_long(text.size());
  return ids;
}

// Refuses a text that is too long for the context before a template makes more of it. Templates may
// leave out blanks at its ends.
Status Runner::check_length(std::string_view text) const {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  const std::size_t size = text.find_last_not_of(kBlanks) + 1 - begin;
  const auto context = static_cast<std::size_t>(session_->context());
  if (tokenizer_.least_tokens(size) <= context) return {};
  return too_long(text.size());
}

Unexpected Runner::too_long(std::size_t bytes) const {
  return failure(StatusCode::kResourceExhausted,
                 "context of {} tokens is exceeded: the prompt has {} bytes and more tokens; raise "
                 "it with --ctx (this model's limit is {})",
                 session_->context(), bytes, engine_->max_context());
}

Result<Turn> Runner::take_turn(const std::string& prompt) {
  Turn turn;
  KAKEYA_ASSIGN_OR_RETURN(turn.prompt_ids, encode_prompt(prompt));
  KAKEYA_ASSIGN_OR_RETURN(turn.kept_tokens, session_->sync(turn.prompt_ids));
  const auto start = std::chrono::steady_clock::now();
  {
    ProgressBar bar("prompt");
    KAKEYA_TRY(session_->prefill([&](std::int64_t done, std::int64_t total) {
      if (total > 2048)
        bar.update(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(total));
      return !interrupt_.interrupted();
    }));
  }
  const std::chrono::duration<double> prefill = std::chrono::steady_clock::now() - start;
  bool thinks = false;
  const auto show_thought = [&](std::string_view piece) {
    thinks = true;
    if (!flags_.json) note_part(piece);
  };
  const auto show_text = [&](std::string_view piece) {
    if (!flags_.json && !piece.empty()) {
      if (std::exchange(thinks, false)) note("");
      write_output(piece);
      flush_output();
    }
    return !interrupt_.interrupted();
  };
  KAKEYA_ASSIGN_OR_RETURN(ApartResult answer, generate_apart(*session_, tokenizer_, flags_.text,
                                                             !flags_.raw, show_thought, show_text));
  turn.result = std::move(answer.said);
  turn.thought = std::move(answer.thought);
  turn.result.tokens.prefill_seconds += prefill.count();
  turn.result.tokens.prefill_tokens =
      static_cast<std::int64_t>(turn.prompt_ids.size()) - turn.kept_tokens;
  // Thoughts do not stay in a conversation.
  if (!flags_.raw) messages_.push_back({"assistant", turn.result.text});
  return turn;
}

// The conversation goes into the file beside the session: templates may write earlier turns in
// another way than the tokens say.
Status Runner::save() {
  if (file_.path().empty()) return {};
  using nlohmann::ordered_json;
  ordered_json record = {{"raw", flags_.raw}, {"messages", ordered_json::array()}};
  for (const ChatMessage& message : messages_) {
    record["messages"].push_back({{"role", message.role}, {"content", message.content}});
  }
  return file_.replace(
      [&](const std::string& path) { return session_->snapshot(path, json_text(record)); });
}

Status Runner::restore() {
  const std::string& path = file_.path();
  if (path.empty()) return {};
  // Whether it can be written is better known now than when the reply is there.
  KAKEYA_TRY(file_.check_writable());
  if (!file_.look()) return {};
  KAKEYA_ASSIGN_OR_RETURN(const std::string text, session_->restore(path));
  std::vector<ChatMessage> messages;
  bool raw = false;
  try {
    const auto record = nlohmann::json::parse(text);
    raw = record.at("raw");
    for (const auto& message : record.at("messages")) {
      messages.push_back({message.at("role"), message.at("content")});
    }
  } catch (const nlohmann::json::exception&) {
    return failure(StatusCode::kDataLoss, "{}: its note is not that of a conversation", path);
  }
  if (raw != flags_.raw) {
    return failure(StatusCode::kFailedPrecondition, "{} was written {} --raw", path,
                   raw ? "with" : "without");
  }
  const bool has_system = !messages.empty() && messages.front().role == "system";
  if (!flags_.system.empty() && (!has_system || messages.front().content != flags_.system)) {
    return failure(StatusCode::kFailedPrecondition, "{} was written with another --system", path);
  }
  messages_ = std::move(messages);
  return {};
}

// Weights as the engine holds them, the rest as the session does, with its live rows.
Footprint ledger(const Engine& engine, const Session& session) {
  Footprint footprint = session.footprint();
  const std::uint64_t weights = engine.footprint().reserved_bytes(MemoryClass::kWeights);
  footprint.reserved_bytes(MemoryClass::kWeights) = weights;
  footprint.live_bytes(MemoryClass::kWeights) = weights;
  return footprint;
}

nlohmann::ordered_json turn_json(const Turn& turn, const Engine& engine, const Session& session) {
  nlohmann::ordered_json json = generation_json(turn.result);
  if (!turn.thought.empty()) json["reasoning"] = turn.thought;
  nlohmann::ordered_json object = {{"prompt_ids", turn.prompt_ids},
                                   {"kept_tokens", turn.kept_tokens}};
  object.update(json);
  object["memory"] = ledger_json(ledger(engine, session));
  const std::string plan = engine.memory_plan();
  if (!plan.empty()) object["memory_plan"] = plan;
  return object;
}

void Runner::show(const Turn& turn, int indent) {
  if (flags_.json) {
    print_json(turn_json(turn, *engine_, *session_), indent);
    flush_output();
  } else {
    print("\n");
    note(generation_summary(turn.result, std::string(engine_->backend_name())));
  }
}

int Runner::one_shot(const std::string& prompt) {
  const auto turn = take_turn(prompt);
  const bool interrupted = interrupt_.interrupted();
  if (!turn) {
    const int code = report(turn.error());
    return interrupted ? kExitInterrupted : code;
  }
  // The answer first: what comes after it may fail.
  show(*turn, 2);
  int code = interrupted ? kExitInterrupted : kExitOk;
  if (const Status saved = save(); !saved) code = report(saved.error());
  if (!flags_.trace.empty()) {
    const Status written = write_trace(flags_.trace, turn->result.tokens);
    if (!written) code = report(written.error());
  }
  return code;
}

Status Runner::clear() {
  messages_.clear();
  if (!flags_.system.empty()) messages_.push_back({"system", flags_.system});
  return file_.path().empty() ? Status() : file_.remove();
}

int Runner::chat() {
  const bool interactive = stdout_is_terminal() && !flags_.json;
  if (interactive) note("Type a message. /help lists commands, Ctrl-D leaves.");
  std::string line;
  while (true) {
    interrupt_.reset();
    if (interactive) print("> ");
    flush_output();
    const auto read = read_line(line);
    if (!read) {
      const int code = report(read.error());
      if (!interactive) return code;
      continue;
    }
    if (!*read) {
      if (!interrupt_.interrupted()) break;
      note("\nCtrl-D leaves.");
      continue;
    }
    if (line.empty()) continue;
    if (line == "/exit" || line == "/quit") break;
    if (line == "/help") {
      note("/clear forgets the conversation, /exit (or Ctrl-D) leaves, Ctrl-C ends a reply.");
      continue;
    }
    if (line == "/clear") {
      if (const Status cleared = clear(); !cleared) {
        const int code = report(cleared.error());
        if (!interactive) return code;
      }
      note("The conversation is forgotten.");
      continue;
    }
    const std::size_t messages_before = messages_.size();
    const auto turn = take_turn(line);
    if (!turn) {
      // The message that could not be answered is dropped; the conversation goes on.
      messages_.resize(messages_before);
      const int code = report(turn.error());
      if (!interactive && !interrupt_.interrupted()) return code;
      continue;
    }
    show(*turn, -1);
    if (const Status saved = save(); !saved) {
      const int code = report(saved.error());
      if (!interactive) return code;
    }
  }
  return kExitOk;
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

Result<std::string> prompt_text(const RunFlags& flags) {
  if (flags.given("--prompt")) {
    if (flags.prompt.empty()) return bad_usage("the prompt is empty");
    return flags.prompt;
  }
  const bool from_stdin = flags.prompt_file.empty() || flags.prompt_file == "-";
  if (from_stdin && stdin_is_terminal()) {
    return bad_usage(
        "there is no prompt: give --prompt TEXT, --prompt-file FILE, --chat, or "
        "text on standard input");
  }
  KAKEYA_ASSIGN_OR_RETURN(std::string text, read_text(from_stdin ? "-" : flags.prompt_file));
  if (text.empty()) return bad_usage("the prompt is empty");
  return text;
}

// Flags that exclude each other, and files that cannot be written: rather now than when the reply
// is there.
Status check_flags(const RunFlags& flags) {
  constexpr const char* kPairs[][2] = {{"--chat", "--raw"},
                                       {"--chat", "--trace"},
                                       {"--chat", "--prompt"},
                                       {"--chat", "--prompt-file"},
                                       {"--raw", "--system"}};
  for (const auto& [one, other] : kPairs) {
    if (flags.given(one) && flags.given(other)) {
      return bad_usage("{} and {} exclude each other", one, other);
    }
  }
  if (!flags.chat && flags.given("--prompt-cache")) {
    return bad_usage("--prompt-cache takes --chat: one answer has nothing to start from");
  }
  return flags.trace.empty() ? Status() : check_writable(flags.trace);
}

// The publisher's sampling where no flag says otherwise.
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

int run(RunFlags& flags) {
  if (const Status sound = check_flags(flags); !sound) return report(sound.error());
  std::string prompt;
  if (!flags.chat) {
    auto text = prompt_text(flags);
    if (!text) return report(text.error());
    prompt = std::move(text).value();
  }
  const auto draft_length = parse_draft_length(flags.draft_length);
  if (!draft_length) return report(draft_length.error());
  flags.text.generate.draft_length = *draft_length;
  flags.text.generate.logprobs = flags.given("--logprobs");
  flags.model.fit_memory = true;
  if (!flags.chat) flags.model.prompt_cache = "off";
  auto engine = open_engine(flags.model);
  if (!engine) return report(engine.error());
  const std::string plan = (*engine)->memory_plan();
  if (!plan.empty()) note("memory plan: " + plan);
  SamplingOptions& sampling = flags.text.generate.sampling;
  if (flags.recommended) recommend(flags, (*engine)->recommended_sampling(), sampling);
  if (const Status bias = parse_logit_bias(flags.logit_bias, sampling); !bias) {
    return report(bias.error());
  }
  const auto tokenizer = (*engine)->tokenizer();
  if (!tokenizer) return report(tokenizer.error());
  auto session = (*engine)->create_session();
  if (!session) return report(session.error());
  Runner runner(flags, std::move(engine).value(), std::move(session).value(), **tokenizer);
  if (const Status restored = runner.restore(); !restored) return report(restored.error());
  return flags.chat ? runner.chat() : runner.one_shot(prompt);
}

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
      .add_option_function<std::string>(
          "--accept",
          [&flags](const std::string& rule) {
            flags.text.generate.accept =
                rule == "rejection" ? AcceptRule::kRejection : AcceptRule::kSampleMatch;
          },
          "sample-match (the output of plain decoding, the default) or rejection (accepts more "
          "when sampling; the same distribution, other tokens)")
      ->check(CLI::IsMember({"sample-match", "rejection"}))
      ->type_name("RULE")
      ->group(group);
  command
      .add_option("--trace", flags.trace,
                  "Write the rounds as Chrome trace events, for chrome://tracing")
      ->type_name("FILE.json")
      ->group(group);
}

}  // namespace

void add_run_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("run", "Answer a prompt, or hold a conversation (--chat)");
  auto flags = std::make_shared<RunFlags>();
  flags->command = command;
  auto* prompt = command->add_option("-p,--prompt", flags->prompt, "The prompt")->type_name("TEXT");
  command
      ->add_option("-f,--prompt-file", flags->prompt_file,
                   "Read it from a file; - or nothing: standard input")
      ->excludes(prompt)
      ->type_name("FILE");
  command->add_flag("-c,--chat", flags->chat, "A conversation; each line of input is a message");
  command->add_option("--system", flags->system, "System message of the conversation")
      ->type_name("TEXT");
  command->add_flag("--raw", flags->raw, "No chat template: continue the text as it is");
  auto* thinking = command->add_flag("--thinking", flags->thinking,
                                     "Let the model think before it answers, by its template; "
                                     "default: as the publisher has it");
  command->add_flag("--no-thinking", flags->no_thinking, "Have it answer at once")
      ->excludes(thinking);
  command
      ->add_option("-n,--max-tokens", flags->text.generate.max_tokens,
                   "Most tokens of a reply (default: 256)")
      ->type_name("N");
  command->add_option("--stop", flags->text.stop_strings, "End before this text; repeatable")
      ->allow_extra_args(false)
      ->type_name("TEXT");
  command
      ->add_option("--session", flags->session,
                   "Go on from this file if it exists, and write it after each reply")
      ->type_name("FILE");
  command
      ->add_option("--logprobs", flags->text.generate.top_logprobs,
                   "With --json: the log-probability of each token, and of the N likeliest there")
      ->type_name("N");
  command->add_flag("--json", flags->json,
                    "Print one JSON object instead of text; with --chat one a line for each reply");
  add_prompt_cache_flag(*command, flags->model);
  add_sampling_flags(*command, *flags);
  add_speculation_flags(*command, *flags);
  add_model_flags(*command, flags->model);
  command->footer(
      "Examples:\n"
      "  kakeya run -p \"Write a Python function that adds two numbers.\"\n"
      "  echo \"Repeat: one two three\" | kakeya run --json\n"
      "  kakeya run --chat --recommended --seed 7 --memory 512MiB\n"
      "  kakeya run --chat --session talk.session");
  command->callback([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace kakeya::cli
