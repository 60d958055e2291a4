// Answers over HTTP, as OpenAI's clients ask for them: listens, and gives each connection a thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kakeya/engine.h"
#include "kakeya/scheduler.h"
#include "kakeya/status.h"
#include "wire/http/serve_options.h"

namespace kakeya::server {

// Thread-safe. The engine must outlive it.
class HttpServer {
 public:
  // Listens and answers from here on. Errors: as Access::open() and Listener::listen(); as
  // Engine::tokenizer() and Engine::create_scheduler().
  static Result<std::unique_ptr<HttpServer>> start(Engine& engine, const ServeOptions& options);

  // Starts a server over a scheduler of another kind, with the engine's tokens.
  static Result<std::unique_ptr<HttpServer>> start(Engine& engine,
                                                   const ServeOptions& options,
                                                   std::unique_ptr<Scheduler> scheduler);

  // Checks the options as start() does, before there is an engine. Errors: as Access::open().
  static Status check(const ServeOptions& options);

  // As stop().
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // "http://127.0.0.1:8080", "https://[::1]:8080", "unix:PATH"
  std::string address() const;
  std::uint16_t port() const;  // 0 of a Unix socket
  SchedulerStatistics statistics() const;

  // For an operator who has changed them: opens the log's file anew and reads the keys anew.
  // Errors: the first of ServerLog::reopen() and Access::reload_keys(); what fails stays as it was.
  Status reload();

  // Takes no requests from here on, and /health says so; those that it has are answered.
  void drain();
  // True if requests are still being answered.
  bool is_answering() const;

  // Ends what is being answered, with an error that says why, and all connections. Returns when
  // that is done: within seconds.
  void stop();

 private:
  struct State;
  explicit HttpServer(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace kakeya::server
