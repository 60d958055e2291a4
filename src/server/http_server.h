// Answers over HTTP, as OpenAI's clients ask for them: listens, and gives each connection a thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kakeya/engine.h"
#include "kakeya/scheduler.h"
#include "kakeya/status.h"
#include "server/serve_options.h"

namespace kakeya::server {

// Thread-safe. The engine must outlive it.
class HttpServer {
 public:
  // Listens and answers from here on. Errors: kInvalidArgument for a host that is not this machine,
  // kUnavailable if the port is taken; as Engine::tokenizer() and Engine::create_scheduler().
  static Result<std::unique_ptr<HttpServer>> start(Engine& engine, const ServeOptions& options);

  // As stop().
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // "http://127.0.0.1:8080"
  std::string address() const;
  std::uint16_t port() const;
  SchedulerStatistics statistics() const;

  // Ends what is being answered, with an error that says why, and all connections. Returns when
  // that is done: within seconds.
  void stop();

 private:
  struct State;
  explicit HttpServer(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace kakeya::server
