// kakeya serve: answers over HTTP.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "command.h"
#include "failure.h"
#include "kakeya/engine.h"
#include "output.h"
#include "report.h"
#include "server/http_server.h"
#include "server/local_address.h"
#include "terminal.h"

namespace kakeya::cli {
namespace {

struct ServeFlags {
  ModelFlags model;
  server::ServeOptions serve;
  std::string draft_length = "auto";
};

// The end of a pipe that a signal writes to; -1: none. A handler can do little else.
volatile int signal_pipe = -1;

void on_signal(int /*signal*/) {
  const int kept = errno;
  const char byte = 0;
  if (::write(signal_pipe, &byte, 1) < 0) errno = kept;
}

// From its making on SIGINT and SIGTERM are waited for instead of ending the program; the second
// one ends it.
class StopSignal {
 public:
  StopSignal() {
    if (::pipe(ends_.data()) != 0) return;
    signal_pipe = ends_[1];
    struct sigaction action = {};
    action.sa_handler = on_signal;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
  }
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool works() const { return ends_[0] >= 0; }
  void wait() const {
    char byte = 0;
    while (::read(ends_[0], &byte, 1) < 0 && errno == EINTR) {
    }
  }

 private:
  std::array<int, 2> ends_ = {-1, -1};
};

// The last folder's or file's name, which is what people call a model.
std::string name_of_model(const std::string& model) {
  std::filesystem::path path = std::filesystem::path(model).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  return path.filename() == "." ? "model" : path.filename().string();
}

void print_welcome(const server::HttpServer& http, const std::string& model) {
  print("{} serves {}: open it in a browser, or ask as OpenAI's clients do. Ctrl-C stops it.\n\n",
        http.address(), model);
  const nlohmann::ordered_json body = {
      {"model", model},
      {"messages",
       nlohmann::ordered_json::array({{{"role", "user"}, {"content", "Count from 5 to 12."}}})},
      {"temperature", 0}};
  print("  curl {}/v1/chat/completions -H 'Content-Type: application/json' \\\n    -d '{}'\n",
        http.address(), json_text(body));
  flush_output();
}

int serve(ServeFlags& flags) {
  const auto draft_length = parse_draft_length(flags.draft_length);
  if (!draft_length) return report(draft_length.error());
  flags.serve.draft_length = *draft_length;
  // Rather now than when the model is loaded.
  if (const auto host = server::local_address(flags.serve.host); !host) {
    return report(host.error());
  }
  auto options = engine_options(flags.model);
  if (!options) return report(options.error());
  if (flags.serve.model_name.empty()) {
    flags.serve.model_name = name_of_model(options->model_dir);
  }
  auto engine = open_engine(flags.model);
  if (!engine) return report(engine.error());
  const StopSignal stop;
  if (!stop.works()) {
    return report(Error(StatusCode::kResourceExhausted, "no pipe is to be had for signals"));
  }
  auto http = server::HttpServer::start(**engine, flags.serve);
  if (!http) return report(http.error());
  print_welcome(**http, flags.serve.model_name);
  stop.wait();
  note("stopping");
  (*http)->stop();
  return kExitOk;
}

}  // namespace

void add_serve_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "serve", "Answer over HTTP: a page for browsers, and what OpenAI's clients ask");
  auto flags = std::make_shared<ServeFlags>();
  server::ServeOptions& serve_options = flags->serve;
  command
      ->add_option("--host", serve_options.host,
                   "Address to listen on: 127.0.0.1 (the default), ::1 or localhost. Others are "
                   "refused, as there are no keys yet")
      ->type_name("ADDRESS");
  command
      ->add_option("--port", serve_options.port,
                   "Port to listen on (default: 8080); 0: one that is free")
      ->check(CLI::Range(0, 65535))
      ->type_name("N");
  command
      ->add_option("--name", serve_options.model_name,
                   "What requests call the model (default: the name of its folder)")
      ->type_name("NAME");
  command
      ->add_option(
          "--parallel", serve_options.scheduler.max_sequences,
          "Most requests that are answered at once, each with a session of its own; others "
          "wait (default: 64)")
      ->type_name("N");
  command
      ->add_option("--queue", serve_options.scheduler.max_waiting,
                   "Most requests that wait; others get 429 (default: 4096)")
      ->type_name("N");
  add_draft_flags(*command, flags->model);
  command
      ->add_option("--draft-length", flags->draft_length,
                   "Tokens drafted in a round: auto (what is fastest here, the default) or N")
      ->type_name("auto|N")
      ->group("Speculation");
  add_model_flags(*command, flags->model);
  command->footer(
      "Routes: POST /v1/chat/completions, /v1/completions, /v1/embeddings, /tokenize, "
      "/detokenize,\n"
      "/apply-template; GET /v1/models, /props, /metrics, /health; GET / is a page for a browser.\n"
      "docs/serving.md lists the fields.\n"
      "Sampling that a request does not name is what the model's publisher recommends.\n"
      "\nExamples:\n"
      "  kakeya serve                          the demo model on http://127.0.0.1:8080\n"
      "  kakeya serve --model DIR --ctx 4096 --memory 16GB --name gemma\n"
      "  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\\n"
      "    -d '{\"model\":\"demo\",\"messages\":[{\"role\":\"user\",\"content\":\"Count from 5 to "
      "12.\"}],\"stream\":true}'");
  command->callback([flags, &exit_code] { exit_code = serve(*flags); });
}

}  // namespace kakeya::cli
