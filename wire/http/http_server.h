// Answers over HTTP: listens, and gives each connection a thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kakeya/status.h"
#include "service/model_pool.h"
#include "service/service.h"
#include "wire/http/http_options.h"
#include "wire/http/routes.h"

namespace kakeya::wire {

class Access;

// Thread-safe.
class HttpServer {
 public:
  // Listens and answers from here on, in each of the dialects. The models must outlive it. Errors:
  // as Access::open() and Listener::listen().
  static Result<std::unique_ptr<HttpServer>> start(service::ModelPool& models,
                                                   const HttpOptions& options,
                                                   std::vector<Dialect> dialects);
  // Answers for one model.
  static Result<std::unique_ptr<HttpServer>> start(service::Service& service,
                                                   const HttpOptions& options,
                                                   std::vector<Dialect> dialects);

  // Checks the options as start() does, before there is a service. Errors: as Access::open().
  static Status check(const HttpOptions& options);

  // As stop().
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // "http://127.0.0.1:8080", "https://[::1]:8080", "unix:PATH"
  std::string address() const;
  std::uint16_t port() const;  // 0 of a Unix socket

  // Its keys and trusted proxies, for other wires.
  std::shared_ptr<Access> access() const;

  // For an operator who has changed them: opens the log's file anew and reads the keys anew.
  // Errors: the first of ServerLog::reopen() and Access::reload_keys(); what fails stays as it was.
  Status reload();

  // Stops the models, then ends all connections. Returns when that is done: within seconds.
  void stop();

 private:
  struct State;
  explicit HttpServer(std::unique_ptr<State> state);
  // `only`: the pool, if it is the server's own.
  static Result<std::unique_ptr<HttpServer>> start(std::unique_ptr<service::ModelPool> only,
                                                   service::ModelPool& models,
                                                   const HttpOptions& options,
                                                   std::vector<Dialect> dialects);

  std::unique_ptr<State> state_;
};

}  // namespace kakeya::wire
