// kakeya run: one prompt, or a conversation.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/failure.h"
#include "cli/line_reader.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "commands.h"
#include "generate_apart.h"
#include "kakeya/engine.h"
#include "kakeya/text_generation.h"
#include "run_flags.h"
#include "service/answer_plan.h"
#include "session_file.h"

namespace kakeya::cli {
namespace {

// One exchange: what went in, what came out.
struct Turn {
  std::vector<TokenId> prompt_ids;
  std::int64_t kept_tokens = 0;  // of the prompt, still there from the turn before
  TextResult result;
  std::string thought = {};
  std::vector<service::ToolCallPiece> calls = {};
};

// The loaded model and the running conversation.
class Runner {
 public:
  Runner(const RunFlags& flags,
         std::shared_ptr<Engine> engine,
         std::unique_ptr<Session> session,
         const Tokenizer& tokenizer,
         service::AnswerOptions asked,
         service::AnswerPlan plan)
      : flags_(flags),
        engine_(std::move(engine)),
        session_(std::move(session)),
        tokenizer_(tokenizer),
        asked_(std::move(asked)),
        plan_(std::move(plan)),
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
  // Calls `encode` with the most tokens that the context holds.
  template <typename Encode>
  Result<std::vector<TokenId>> fitting(std::size_t bytes, const Encode& encode) const;
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
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<Session> session_;
  const Tokenizer& tokenizer_;
  const service::AnswerOptions asked_;
  const service::AnswerPlan plan_;
  std::vector<ChatMessage> messages_;
  SessionFile file_;
  InterruptGuard interrupt_;
};

Result<std::vector<TokenId>> Runner::encode_prompt(const std::string& prompt) {
  if (flags_.raw) {
    const std::span<const TokenId> held = session_->tokens();  // restored
    KAKEYA_ASSIGN_OR_RETURN(std::vector<TokenId> ids, fitting(prompt.size(), [&](std::size_t most) {
                              const EncodeOptions options = {.most_tokens = most};
                              return held.empty() ? engine_->encode_text(prompt, options)
                                                  : tokenizer_.encode(prompt, options);
                            }));
    ids.insert(ids.begin(), held.begin(), held.end());
    return ids;
  }
  KAKEYA_TRY(check_length(prompt));
  messages_.push_back({"user", prompt});
  KAKEYA_ASSIGN_OR_RETURN(const ChatPrompt chat, engine_->apply_chat_template(
                                                     messages_, {.enable_thinking = asked_.thinking,
                                                                 .tools = asked_.tools}));
  return fitting(chat.text.size(), [&](std::size_t most) {
    return tokenizer_.encode(chat.text, {.most_tokens = most, .plain = chat.plain});
  });
}

// Ids beyond the context are not made, so that a text's memory is bounded by the session's size.
template <typename Encode>
Result<std::vector<TokenId>> Runner::fitting(std::size_t bytes, const Encode& encode) const {
  Result<std::vector<TokenId>> ids = encode(static_cast<std::size_t>(session_->context()));
  if (!ids && ids.error().code() == StatusCode::kResourceExhausted) return too_long(bytes);
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
  std::optional<ProgressBar> bar("prompt");  // until there is something to show
  GenerateOptions options = flags_.text.generate;
  options.on_prefill = [&](std::int64_t done, std::int64_t total) {
    constexpr std::int64_t kLong = 2048;
    if (total > kLong)
      bar->update(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(total));
    return !interrupt_.interrupted();
  };
  const auto constraint = plan_.constrain(turn.prompt_ids);
  options.constraint = constraint.get();
  KAKEYA_ASSIGN_OR_RETURN(auto splitter, plan_.split(turn.prompt_ids));
  bool thinks = false;
  const auto show_thought = [&](std::string_view piece) {
    bar.reset();
    thinks = true;
    if (!flags_.json) note_part(piece);
  };
  const auto show_text = [&](std::string_view piece) {
    bar.reset();
    if (!flags_.json && !piece.empty()) {
      if (std::exchange(thinks, false)) note("");
      show_answer(piece);
    }
    return !interrupt_.interrupted();
  };
  KAKEYA_ASSIGN_OR_RETURN(
      ApartResult answer,
      generate_apart(*session_, options, std::move(splitter), show_thought, show_text));
  turn.result = std::move(answer.said);
  turn.thought = std::move(answer.thought);
  turn.calls = std::move(answer.calls);
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
  // A file that cannot be written is better refused now than when the reply is there.
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

// The arguments as a text, as OpenAI's API has them.
nlohmann::ordered_json call_json(const service::ToolCallPiece& call) {
  return {{"name", call.name}, {"arguments", call.arguments}};
}

nlohmann::ordered_json turn_json(const Turn& turn, const Engine& engine, const Session& session) {
  nlohmann::ordered_json json = generation_json(turn.result);
  if (!turn.thought.empty()) json["reasoning"] = turn.thought;
  for (const service::ToolCallPiece& call : turn.calls) {
    json["tool_calls"].push_back(call_json(call));
  }
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
    if (turn.calls.empty() || !turn.result.text.empty()) print("\n");
    for (const service::ToolCallPiece& call : turn.calls) print_json(call_json(call), -1);
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
  LineReader lines(interactive ? "> " : "", interrupt_);
  while (true) {
    interrupt_.reset();
    const auto read = lines.read(line);
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

Result<std::string> prompt_text(const RunFlags& flags) {
  if (flags.has_prompt) {
    if (flags.prompt.empty()) return bad_usage("the prompt is empty");
    return flags.prompt;
  }
  const bool from_stdin = flags.prompt_file.empty() || flags.prompt_file == "-";
  if (from_stdin && stdin_is_terminal()) {
    return bad_usage(
        "there is no prompt: give \"TEXT\", --prompt-file FILE, --chat, or "
        "text on standard input");
  }
  KAKEYA_ASSIGN_OR_RETURN(std::string text, read_text(from_stdin ? "-" : flags.prompt_file));
  // The end of a file's last line is no part of a question; --raw takes every byte.
  if (!flags.raw && text.ends_with('\n')) text.pop_back();
  if (!flags.raw && text.ends_with('\r')) text.pop_back();
  if (text.empty()) return bad_usage("the prompt is empty");
  return text;
}

}  // namespace

int run(RunFlags& flags) {
  if (const Status taken = take_words(flags); !taken) return report(taken.error());
  if (const Status sound = check_flags(flags); !sound) return report(sound.error());
  std::string prompt;
  if (!flags.chat) {
    auto text = prompt_text(flags);
    if (!text) return report(text.error());
    prompt = std::move(text).value();
  }
  auto asked = answer_options(flags);
  if (!asked) return report(asked.error());
  const auto draft_length = parse_draft_length(flags.draft_length);
  if (!draft_length) return report(draft_length.error());
  flags.text.generate.draft_length = *draft_length;
  flags.text.generate.logprobs = flags.given("--logprobs");
  flags.model.fit_memory = true;
  if (!flags.chat) flags.model.prompt_cache = "off";
  if (!flags.raw) flags.model.texts = ModelTexts::kChat;
  auto engine = open_engine(flags.model);
  if (!engine) return report(engine.error());
  const std::string memory_plan = (*engine)->memory_plan();
  if (!memory_plan.empty()) note("memory plan: " + memory_plan);
  SamplingOptions& sampling = flags.text.generate.sampling;
  if (flags.recommended) recommend(flags, (*engine)->recommended_sampling(), sampling);
  if (const Status bias = parse_logit_bias(flags.logit_bias, sampling); !bias) {
    return report(bias.error());
  }
  const auto tokenizer = (*engine)->tokenizer();
  if (!tokenizer) return report(tokenizer.error());
  service::AnswerPlanner planner(**engine);
  auto plan = planner.plan(*asked);
  if (!plan) return report({plan.error().status, plan.error().message});
  for (const std::string& not_enforced : plan->notes()) note("not enforced: " + not_enforced);
  auto session = (*engine)->create_session();
  if (!session) return report(session.error());
  Runner runner(flags, std::move(engine).value(), std::move(session).value(), **tokenizer,
                std::move(*asked), std::move(*plan));
  if (const Status restored = runner.restore(); !restored) return report(restored.error());
  return flags.chat ? runner.chat() : runner.one_shot(prompt);
}

void add_run_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("run", "Answer a prompt, or hold a conversation (--chat)");
  auto flags = std::make_shared<RunFlags>();
  add_run_flags(*command, *flags);
  command->footer(
      "Examples:\n"
      "  kakeya run \"Write a Python function that adds two numbers.\"\n"
      "  kakeya run DIR \"Why is the sky blue?\"         DIR: a model's folder or GGUF file\n"
      "  echo \"Repeat: one two three\" | kakeya run --json\n"
      "  kakeya run --chat --recommended --seed 7 --memory 512MiB\n"
      "  kakeya run --chat --session talk.session\n"
      "  kakeya run --json-schema person.json \"Name a person.\"\n"
      "  kakeya run --tools tools.json \"What is the weather in Paris?\"");
  command->callback([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace kakeya::cli
