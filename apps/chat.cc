// kakeya chat: a conversation with a server, which holds the model, or with a model of its own.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cli/command.h"
#include "cli/line_reader.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/server_flags.h"
#include "cli/terminal.h"
#include "commands.h"
#include "kakeya/status_macros.h"
#include "run_flags.h"
#include "wire/client/chat_client.h"

namespace kakeya::cli {
namespace {

struct ChatFlags {
  std::string model;  // here, or of the server; empty: the server's first
  bool pull = false;  // ModelFlags::pull
  ServerFlags server{.url = "http://127.0.0.1:8080"};
  std::string system;
  std::optional<double> temperature;
  std::optional<std::int64_t> max_tokens;
};

nlohmann::json with_system(const std::string& system) {
  if (system.empty()) return nlohmann::json::array();
  return nlohmann::json::array({{{"role", "system"}, {"content", system}}});
}

void show_rate(const client::ChatReply& reply) {
  if (!stderr_is_terminal()) return;
  if (reply.stopped) return note("stopped");
  if (reply.tokens < 2 || reply.seconds <= 0.0) return;
  note(fmt::format("{} tokens, {:.1f} a second", reply.tokens,
                   static_cast<double>(reply.tokens - 1) / reply.seconds));
}

// Answers one line; an error ends the conversation only if the server is gone.
Status answer(const client::ChatClient& client,
              const nlohmann::json& options,
              nlohmann::json& messages) {
  nlohmann::json body = options;
  body["messages"] = messages;
  KAKEYA_ASSIGN_OR_RETURN(const client::ChatReply reply, client.ask(std::move(body), show_answer));
  print("\n");
  flush_output();
  show_rate(reply);
  messages.push_back({{"role", "assistant"}, {"content", reply.text}});
  return {};
}

int talk(const client::ChatClient& client,
         const nlohmann::json& options,
         const std::string& system,
         InterruptGuard& interrupt) {
  nlohmann::json messages = with_system(system);
  // Who asks from a script has nothing else to tell a refusal from an answer by.
  int ended = kExitOk;
  std::string line;
  LineReader lines(stderr_is_terminal() && stdout_is_terminal() ? "> " : "", interrupt);
  for (;;) {
    interrupt.reset();
    const auto read = lines.read(line);
    if (!read) return report(read.error());
    if (!*read) break;
    if (line.empty()) continue;
    if (line == "/reset") {
      messages = with_system(system);
      note("the conversation begins anew");
      continue;
    }
    messages.push_back({{"role", "user"}, {"content", line}});
    const Status answered = answer(client, options, messages);
    if (answered) continue;
    const int code = report(answered.error());
    if (answered.error().code() == StatusCode::kUnavailable) return code;
    if (!stdin_is_terminal()) ended = code;
    messages.erase(messages.size() - 1);  // the question that was refused
  }
  if (stdout_is_terminal()) print("\n");
  return ended;
}

int chat(const ChatFlags& flags) {
  auto server = client_options(flags.server);
  if (!server) return report(server.error());
  InterruptGuard interrupt;
  const client::ChatClient client(std::move(*server),
                                  [&interrupt] { return interrupt.interrupted(); });
  auto model = client.model();
  if (!model && model.error().code() == StatusCode::kUnavailable) {
    return report(Error(StatusCode::kUnavailable,
                        fmt::format("{} at {}: start `kakeya serve` first, or give --url",
                                    model.error().message(), flags.server.url)));
  }
  if (!model) return report(model.error());
  // A name that it has not, or has as an alias, is the server's to judge.
  if (!flags.model.empty()) model = flags.model;
  nlohmann::json options = {{"model", *model}};
  if (flags.temperature) options["temperature"] = *flags.temperature;
  if (flags.max_tokens) options["max_tokens"] = *flags.max_tokens;
  if (stderr_is_terminal()) {
    note(fmt::format("{} at {}. Ctrl-C stops an answer, Ctrl-D ends, /reset begins anew.", *model,
                     flags.server.url));
  }
  return talk(client, options, flags.system, interrupt);
}

// As run --chat, with the publisher's sampling, as a server has it.
int chat_here(const CLI::App& command, const ChatFlags& flags) {
  RunFlags run_flags;
  run_flags.command = &command;
  run_flags.system = flags.system;
  run_flags.chat = true;
  run_flags.recommended = true;
  run_flags.model.model = flags.model;
  run_flags.model.pull = flags.pull;
  run_flags.model.draft = "auto";
  run_flags.model.prompt_cache = "auto";
  if (flags.temperature) {
    run_flags.text.generate.sampling.temperature = static_cast<float>(*flags.temperature);
  }
  if (flags.max_tokens) run_flags.text.generate.max_tokens = *flags.max_tokens;
  return run(run_flags);
}

}  // namespace

void add_chat_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("chat", "Talk to a server, or a model, from a terminal");
  auto flags = std::make_shared<ChatFlags>();
  add_server_flags(*command, flags->server, "The server");
  command
      ->add_option("-m,--model,model", flags->model,
                   "A model folder or GGUF file to talk to here, as `kakeya run --chat` does with "
                   "more flags; with --url, --key-file or --tls-ca the name of a model of the "
                   "server (default: its first)")
      ->type_name("DIR|NAME");
  add_pull_flag(*command, flags->pull)
      ->needs("--model")
      ->excludes("--url")
      ->excludes("--key-file")
      ->excludes("--tls-ca");
  command->add_option("--system", flags->system, "System prompt")->type_name("TEXT");
  command
      ->add_option("--temperature", flags->temperature,
                   "0: the likeliest token (default: the model's)")
      ->type_name("T");
  command->add_option("--max-tokens", flags->max_tokens, "Most tokens of an answer")
      ->type_name("N");
  command->footer(
      "Each line of standard input is a question; the answer comes as it is made. Ctrl-C stops an\n"
      "answer, Ctrl-D ends, /reset begins the conversation anew. Thoughts are not shown.\n"
      "Exit code 2 if the server goes away or, where questions come from a file or a pipe, refuses "
      "one.\n"
      "\nExamples:\n"
      "  kakeya serve &                        a server on this machine, then:\n"
      "  kakeya chat --temperature 0\n"
      "  kakeya chat DIR                       the model of DIR, without a server\n"
      "  kakeya chat --url https://localhost:8080 --tls-ca cert.pem --key-file key\n"
      "  kakeya chat --url unix:PATH           of `kakeya serve --socket PATH`\n"
      "  kakeya chat --url http://HOST NAME    one of several models of a server");
  command->callback([command, flags, &exit_code] {
    const auto is_given = [&](const char* name) { return command->count(name) > 0; };
    const bool is_served =
        flags->model.empty() || is_given("--url") || is_given("--key-file") || is_given("--tls-ca");
    exit_code = is_served ? chat(*flags) : chat_here(*command, *flags);
  });
}

}  // namespace kakeya::cli
