// kakeya serve: answers over HTTP.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/failure.h"
#include "cli/flag_names.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/settings.h"
#include "cli/terminal.h"
#include "commands.h"
#include "kakeya/engine.h"
#include "kakeya/status_macros.h"
#include "process_limits.h"
#include "serve_models.h"
#include "service/model_pool.h"
#include "service/replica_name.h"
#include "service/service.h"
#include "stop_signals.h"
#include "wire/anthropic/routes.h"
#include "wire/grpc/grpc_server.h"
#include "wire/http/http_server.h"
#include "wire/http/keys.h"
#include "wire/lm_studio/routes.h"
#include "wire/ollama/routes.h"
#include "wire/openai/routes.h"
#include "wire/sessions/routes.h"

namespace kakeya::cli {
namespace {

struct ServeFlags {
  ModelNames names;
  ModelFlags model;
  service::ServiceOptions service;
  wire::HttpOptions http;
  wire::GrpcOptions grpc;  // without an address: none
  std::string draft_length = "auto";
  std::string new_key;  // the name of a key to be made instead
  std::string config;
  bool rereads_memory = false;  // from `config`, where several models share it
  std::string log_level = "info";
  double watchdog_seconds = 30.0;
  double drain_delay = 0.0;
  double drain_seconds = 30.0;
  double request_timeout = 0.0;
  double session_ttl = 0.0;
};

// The line goes into the file that --keys names, the key to whom it is for.
int make_key(const std::string& name) {
  const auto made = wire::make_key(name);
  if (!made) return report(made.error());
  print("{}\n", made->line);
  note("the key of " + name + ", which is kept nowhere else:");
  print_error("{}\n", made->key);
  return kExitOk;
}

void print_welcome(const wire::HttpServer& http,
                   const service::ModelPool& models,
                   const ServeFlags& flags) {
  const wire::HttpOptions& options = flags.http;
  const bool is_file = !options.socket_path.empty();
  std::vector<std::string> names;
  for (const service::ModelStatus& model : models.list()) names.push_back(model.name);
  const std::string& model = names.front();
  print("{} serves {}: {} as OpenAI's clients do. Ctrl-C stops it.\n\n", http.address(),
        fmt::format("{}", fmt::join(names, ", ")),
        is_file ? "ask" : "open it in a browser, or ask");
  std::string how;
  if (is_file) how += " --unix-socket " + options.socket_path;
  if (!options.tls_certificate.empty()) how += " --cacert " + options.tls_certificate;
  if (!options.keys_file.empty()) how += " -H \"Authorization: Bearer $KAKEYA_API_KEY\"";
  const std::string scheme = options.tls_certificate.empty() ? "http" : "https";
  const std::string url = is_file ? scheme + "://localhost" : http.address();
  const nlohmann::ordered_json body = {
      {"model", model},
      {"messages",
       nlohmann::ordered_json::array({{{"role", "user"}, {"content", "Count from 5 to 12."}}})},
      {"temperature", 0}};
  print("  curl{} {}/v1/chat/completions -H 'Content-Type: application/json' \\\n    -d '{}'\n",
        how, url, json_text(body));
  flush_output();
}

// Calls end as soon as the service has stopped.
constexpr std::chrono::seconds kGrpcGrace{2};

Status check_grpc(const wire::GrpcOptions& options) {
  return options.address.empty() ? Status() : wire::GrpcServer::check(options);
}

void print_grpc(const wire::GrpcServer& grpc) {
  print("\ngRPC on {}: kakeya.v1.RuntimeService, grpc.health.v1, reflection.\n", grpc.address());
  flush_output();
}

// Lets load balancers see that the server goes, then what is being answered come to its end.
void drain(service::ServerState& server, const Signals& signals, const ServeFlags& flags) {
  server.announce_drain();
  if (!signals.wait_while(flags.drain_delay, [] { return true; })) return;
  server.drain();
  if (server.is_answering()) note("answering what was asked");
  signals.wait_while(flags.drain_seconds, [&] { return server.is_answering(); });
}

// The models that answer: one that is there all the time, or several that come and go.
struct Models {
  std::shared_ptr<Engine> engine = {};
  std::unique_ptr<service::Service> service = {};  // null: several
  SeveralModels several = {};
  std::unique_ptr<service::ModelPool> one = {};

  service::ModelPool& pool() const { return one != nullptr ? *one : *several.pool; }
};

Result<Models> open_one(ServeFlags& flags) {
  if (!flags.names.models.empty()) flags.model.model = flags.names.models.front();
  KAKEYA_ASSIGN_OR_RETURN(const EngineOptions options, engine_options(flags.model));
  if (flags.service.model_name.empty()) {
    flags.service.model_name = name_of_model(flags.model.model, options.model_dir);
  }
  flags.service.aliases = flags.names.aliases;
  Models models;
  KAKEYA_ASSIGN_OR_RETURN(models.engine, open_engine(flags.model));
  const ChatMessage greeting = {.role = "user", .content = "Hello."};
  if (const auto chat = models.engine->apply_chat_template({&greeting, 1}); !chat) {
    note("conversations will be refused: " + with_flags(chat.error().message()));
  }
  KAKEYA_ASSIGN_OR_RETURN(models.service, service::Service::create(*models.engine, flags.service));
  models.one = std::make_unique<service::ModelPool>(*models.service);
  return models;
}

Result<Models> open_several(ServeFlags& flags) {
  if (!flags.grpc.address.empty()) {
    return Unexpected(
        Error(StatusCode::kUnimplemented, "--grpc: expected with one model, got several"));
  }
  Models models;
  KAKEYA_ASSIGN_OR_RETURN(models.several, open_models(flags.names, flags.model, flags.service));
  return models;
}

// Takes over what flags say, as far as it is not one value. Errors: of what cannot be.
Status settle(ServeFlags& flags) {
  KAKEYA_ASSIGN_OR_RETURN(flags.service.draft_length, parse_draft_length(flags.draft_length));
  flags.service.log_level = flags.log_level == "debug"  ? service::LogLevel::kDebug
                            : flags.log_level == "info" ? service::LogLevel::kInfo
                                                        : service::LogLevel::kWarn;
  flags.service.request_timeout = std::chrono::duration<double>(flags.request_timeout);
  flags.service.sessions.idle_limit = std::chrono::duration<double>(flags.session_ttl);
  flags.service.watchdog = std::chrono::milliseconds(std::llround(flags.watchdog_seconds * 1000.0));
  flags.grpc.tls_certificate = flags.http.tls_certificate;
  flags.grpc.tls_key = flags.http.tls_key;
  flags.grpc.keys_file = flags.http.keys_file;
  std::string& name = flags.service.sessions.replica_name;
  if (name.empty()) {
    name = service::default_replica_name(flags.http.socket_path.empty() ? flags.http.port : 0);
  }
  // Without keys everybody is one.
  if (flags.http.keys_file.empty()) flags.service.shared_prompt_cache = true;
  // Sessions come back with their keys and values.
  const std::string& sessions_dir = flags.service.sessions.folder;
  if (!sessions_dir.empty() && flags.model.prompt_cache_dir.empty() &&
      flags.model.prompt_cache != "off") {
    flags.model.prompt_cache_dir = sessions_dir + "/prefixes";
  }
  // Each request takes what its own text needs, not what the longest would.
  flags.model.grow = true;
  // Rather now than when the model is loaded.
  KAKEYA_TRY(wire::HttpServer::check(flags.http));
  KAKEYA_TRY(check_grpc(flags.grpc));
  return service::ServerState::check(flags.service);
}

// Answers until a signal ends it.
int answer(Models& models, const Signals& signals, const ServeFlags& flags) {
  const wire::Dialect openai = openai::dialect();
  auto http =
      wire::HttpServer::start(models.pool(), flags.http,
                              {openai, anthropic::dialect(), lm_studio::dialect(openai.error_body),
                               ollama::dialect(), sessions::dialect(openai.error_body)});
  if (!http) return report(http.error());
  std::unique_ptr<wire::GrpcServer> grpc;
  if (!flags.grpc.address.empty()) {
    auto started = wire::GrpcServer::start(*models.service, flags.grpc, (*http)->access());
    if (!started) return report(started.error());
    grpc = std::move(*started);
  }
  print_welcome(**http, models.pool(), flags);
  if (grpc != nullptr) print_grpc(*grpc);
  Signal signal = Signal::kReload;
  while ((signal = signals.wait()) == Signal::kReload) {
    if (const Status reloaded = (*http)->reload(); !reloaded) report(reloaded.error());
    if (!flags.rereads_memory) continue;
    if (const Status reread = reread_memory(models.pool(), flags.config); !reread) {
      report(reread.error());
    }
  }
  if (signal == Signal::kDrain) drain(models.pool().server(), signals, flags);
  note("stopping");
  (*http)->stop();
  if (grpc != nullptr) grpc->stop(kGrpcGrace);
  return kExitOk;
}

int serve(ServeFlags& flags) {
  give_memory_back();
  raise_descriptor_limit();
  ::signal(SIGPIPE, SIG_IGN);  // who reads --log - may go
  if (!flags.new_key.empty()) return make_key(flags.new_key);
  if (const Status settled = settle(flags); !settled) return report(settled.error());
  const bool reloads =
      !flags.service.log_file.empty() || !flags.http.keys_file.empty() || flags.rereads_memory;
  if (reloads) ::signal(SIGHUP, SIG_IGN);  // while the model is loaded
  auto models = flags.names.are_several() ? open_several(flags) : open_one(flags);
  if (!models) return report(models.error());
  const Signals signals(reloads);
  if (!signals.works()) {
    return report(Error(StatusCode::kResourceExhausted, "no pipe is to be had for signals"));
  }
  const int exit_code = answer(*models, signals, flags);
  if (models->pool().is_compiling()) {
    // Nobody waits for that grammar any more.
    flush_output();
    models->several.sessions.reset();
    std::_Exit(exit_code);
  }
  return exit_code;
}

void add_log_flags(CLI::App& command, ServeFlags& flags) {
  constexpr const char* kGroup = "Log";
  service::ServiceOptions& options = flags.service;
  command
      .add_option(
          "--log", options.log_file,
          "Append a line of JSON for each request, without what was asked and answered; - "
          "is standard output. SIGHUP opens FILE anew, and reads --keys anew, and the memory "
          "of several models that --config has")
      ->type_name("FILE|-")
      ->group(kGroup);
  command
      .add_option(
          "--log-level", flags.log_level,
          "debug (/health, /metrics and the page's files too), info (default), or warn (what "
          "was refused or failed)")
      ->check(CLI::IsMember({"debug", "info", "warn"}).description(""))
      ->type_name("debug|info|warn")
      ->group(kGroup);
  command
      .add_option(
          "--watchdog", flags.watchdog_seconds,
          "A pass that takes longer makes /health say 503, until it has ended (default: 30); "
          "0: none is too long")
      ->check(CLI::Range(0.0, 86400.0))
      ->type_name("SECONDS")
      ->group(kGroup);
}

void add_session_flags(CLI::App& command, ServeFlags& flags) {
  constexpr const char* kGroup = "Sessions";
  service::SessionsOptions& options = flags.service.sessions;
  command
      .add_option(
          "--sessions-dir", options.folder,
          "Keep sessions (/v1/sessions) and stored responses in this folder, from one start "
          "to the next, and their keys and values in DIR/prefixes, unless "
          "--prompt-cache-dir says where; without it they end with the server")
      ->type_name("DIR")
      ->group(kGroup);
  command
      .add_option(
          "--replica-name", options.replica_name,
          "Name of this server among its replicas, in ids of stored responses and sessions, "
          "by which a balancer finds it: 1 to 48 of a-z, 0-9 and - (default: of the host's "
          "name and the port)")
      ->type_name("NAME")
      ->group(kGroup);
  command
      .add_option("--sessions", options.most_sessions,
                  "Most open sessions of a key, or of an address without keys; others are refused "
                  "(default: 1024)")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N")
      ->group(kGroup);
  command
      .add_option("--session-ttl", flags.session_ttl,
                  "End sessions that nobody has used for so long (default: 0, never)")
      ->check(CLI::Range(0.0, 1e9))
      ->type_name("SECONDS")
      ->group(kGroup);
}

// Where it listens, and for whom.
void add_access_flags(CLI::App& command, ServeFlags& flags) {
  constexpr const char* kGroup = "Keys and TLS";
  wire::HttpOptions& options = flags.http;
  CLI::Option* const host =
      command
          .add_option("--host", options.host,
                      "Address to listen on (default: 127.0.0.1). What other machines reach takes "
                      "--keys, --tls-cert and --tls-key")
          ->type_name("ADDRESS");
  CLI::Option* const port =
      command
          .add_option("--port", options.port,
                      "Port to listen on (default: 8080); 0: one that is free")
          ->check(CLI::Range(0, 65535))
          ->type_name("N");
  command
      .add_option("--socket", options.socket_path,
                  "Unix socket to listen on instead, of this user alone (mode 0600)")
      ->type_name("PATH")
      ->excludes(host)
      ->excludes(port);
  command
      .add_option("--grpc", flags.grpc.address,
                  "Serve sessions over gRPC too, on this address (kakeya.v1.RuntimeService), with "
                  "the same keys and TLS; port 0: one that is free")
      ->type_name("HOST:PORT");
  command
      .add_option("--keys", options.keys_file,
                  "Only answer who has a key: lines of NAME:HASH or NAME:HASH:REQUESTS_PER_MINUTE, "
                  "as --new-key makes them, and :priority=K for requests as urgent as that")
      ->type_name("FILE")
      ->group(kGroup);
  command
      .add_option(
          "--allow-host", options.allowed_hosts,
          "Answer requests for this name, too, as a proxy in front passes it on in the field "
          "Host; repeatable")
      ->allow_extra_args(false)
      ->type_name("NAME")
      ->group(kGroup);
  command
      .add_option("--allow-origin", options.allowed_origins,
                  "Let pages of this origin (https://example.com, or *) read answers (CORS); "
                  "repeatable")
      ->allow_extra_args(false)
      ->type_name("ORIGIN")
      ->group(kGroup);
  command
      .add_option("--trusted-proxy", options.trusted_proxies,
                  "Believe Forwarded and X-Forwarded-For of this address or network (10.0.0.0/8; "
                  "unix: of --socket); repeatable")
      ->allow_extra_args(false)
      ->type_name("ADDRESS")
      ->group(kGroup);
  command
      .add_option("--new-key", flags.new_key,
                  "Make a key and end: its line on standard output, the key itself, this once, on "
                  "standard error")
      ->check([](const std::string& name) {
        // An empty one would say that no key is to be made, and start a server.
        return std::string(name.empty() ? "expected a name" : "");
      })
      ->type_name("NAME")
      ->group(kNotSettings);
  command
      .add_option("--tls-cert", options.tls_certificate,
                  "Serve https (TLS 1.2 or newer) with this certificate and its chain, in PEM")
      ->type_name("FILE")
      ->group(kGroup);
  command.add_option("--tls-key", options.tls_key, "The certificate's private key, in PEM")
      ->type_name("FILE")
      ->group(kGroup);
}

}  // namespace

void add_serve_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "serve", "Answer over HTTP: a page for browsers, and what OpenAI's clients ask");
  auto flags = std::make_shared<ServeFlags>();
  service::ServiceOptions& service_options = flags->service;
  add_model_names(*command, flags->names);
  add_memory_flags(*command, flags->model);
  add_pull_flag(*command, flags->model.pull);
  add_access_flags(*command, *flags);
  add_log_flags(*command, *flags);
  command
      ->add_option("--config", flags->config,
                   "Settings in TOML, one a line, by the names of these flags: port = 8080")
      ->type_name("FILE")
      ->group(kNotSettings);
  command
      ->add_option("--name", service_options.model_name,
                   "What requests call the model (default: the name of its folder)")
      ->type_name("NAME");
  command
      ->add_option(
          "--parallel", service_options.scheduler.max_sequences,
          "Most requests that are answered at once, each with a session of its own; others "
          "wait (default: 64)")
      ->type_name("N");
  command
      ->add_option("--queue", service_options.scheduler.max_waiting,
                   "Most requests that wait; others get 429 (default: 4096)")
      ->type_name("N")
      ->group("Requests");
  command
      ->add_option(
          "--request-timeout", flags->request_timeout,
          "Most time of a request; then it ends with 504. A request may ask for less in its "
          "field X-Request-Timeout (default: 0, any)")
      ->check(CLI::Range(0.0, 1e6))
      ->type_name("SECONDS")
      ->group("Requests");
  command
      ->add_option("--drain", flags->drain_seconds,
                   "At SIGTERM, how long what is being answered may take to its end; new requests "
                   "get 503 meanwhile, as /health does (default: 30)")
      ->check(CLI::Range(0.0, 86400.0))
      ->type_name("SECONDS")
      ->group("Requests");
  command
      ->add_option(
          "--drain-delay", flags->drain_delay,
          "At SIGTERM, how long requests are still taken while /readyz and /health say 503, "
          "so that a load balancer has seen it before one is refused (default: 0)")
      ->check(CLI::Range(0.0, 86400.0))
      ->type_name("SECONDS")
      ->group("Requests");
  add_session_flags(*command, *flags);
  add_prompt_cache_flag(*command, flags->model);
  command
      ->add_flag("--prompt-cache-shared", service_options.shared_prompt_cache,
                 "All keys share one prompt cache, and find by times what others have asked")
      ->group("KV cache");
  add_chat_template_flag(*command, flags->model);
  add_draft_flags(*command, flags->model);
  add_draft_length_flag(*command, flags->draft_length);
  add_model_flags(*command, flags->model);
  command->footer(
      "Routes: POST /v1/chat/completions, /v1/responses, /v1/completions, /v1/embeddings,\n"
      "/v1/messages (Anthropic's), /api/chat, /api/generate (Ollama's), /infill, /tokenize,\n"
      "/detokenize, /apply-template, /v1/sessions, /api/v1/models/load (LM Studio's);\n"
      "GET /v1/models, /v1/sessions, /props, /metrics, /health;\n"
      "GET / is a page for a browser.\n"
      "docs/serving.md lists the fields.\n"
      "What is not given here is taken from the environment (--tls-cert: KAKEYA_SERVE_TLS_CERT), "
      "then from\n--config (or KAKEYA_SERVE_CONFIG).\n"
      "Sampling that a request does not name is what the model's publisher recommends.\n"
      "\nExamples:\n"
      "  kakeya serve                          the demo model on http://127.0.0.1:8080\n"
      "  kakeya serve DIR --ctx 4096 --memory 16GB --name gemma\n"
      "  kakeya serve --new-key ann >> keys    a key for ann, then, for other machines:\n"
      "  kakeya serve --host 0.0.0.0 --keys keys --tls-cert cert.pem --tls-key key.pem\n"
      "  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\\n"
      "    -d '{\"model\":\"demo\",\"messages\":[{\"role\":\"user\",\"content\":\"Count from 5 to "
      "12.\"}],\"stream\":true}'");
  command->callback([command, flags, &exit_code] {
    const char* const file = std::getenv("KAKEYA_SERVE_CONFIG");
    if (flags->config.empty() && file != nullptr) flags->config = file;
    const bool is_files = is_left_open(*command, "KAKEYA_SERVE", "memory");
    take_settings(*command, "KAKEYA_SERVE", flags->config);
    flags->rereads_memory = is_files && !flags->config.empty() && flags->names.are_several();
    exit_code = serve(*flags);
  });
}

}  // namespace kakeya::cli
