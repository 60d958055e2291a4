// Answers requests, whatever carries them: one engine, the thread that drives its scheduler, counts
// and the log. HTTP and every other wire share one service.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "kakeya/engine.h"
#include "kakeya/scheduler.h"
#include "kakeya/status.h"
#include "kakeya/tokenizer.h"
#include "service/answer_plan.h"
#include "service/cache_scope.h"
#include "service/driver.h"
#include "service/metrics.h"
#include "service/server_log.h"
#include "service/service_options.h"
#include "service/sessions/kept_texts.h"
#include "service/sessions/sessions.h"

namespace kakeya::service {

// The state of a service as a load balancer asks for it.
struct Health {
  std::string status = "ok";  // "degraded", "draining", "unavailable", "stalled"
  std::string reason = {};    // empty if it is ok

  // True if requests are answered: of a degraded service all but what its reason is about.
  bool is_well() const { return status == "ok" || status == "degraded"; }
};

// Thread-safe. The engine must outlive it.
class Service {
 public:
  // Errors: as ServerLog::open(), Engine::tokenizer(), Engine::create_scheduler(),
  // Sessions::open() and KeptTexts::open(); kResourceExhausted without memory for the smallest
  // request.
  static Result<std::unique_ptr<Service>> create(Engine& engine, const ServiceOptions& options);
  // Creates a service over a scheduler of another kind, with the engine's tokens.
  static Result<std::unique_ptr<Service>> create(Engine& engine,
                                                 const ServiceOptions& options,
                                                 std::unique_ptr<Scheduler> scheduler);

  // Checks the options as create() does, before there is an engine. Errors: as ServerLog::open().
  static Status check(const ServiceOptions& options);

  // As stop().
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  Engine& engine() const { return engine_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  const ServiceOptions& options() const { return options_; }
  CacheScopes cache_scopes() const { return {.per_owner = !options_.shared_prompt_cache}; }
  // Plans answers: thoughts, calls of tools, forms.
  AnswerPlanner& planner() { return planner_; }
  std::int64_t started() const { return started_; }  // Unix time
  ServerLog& log() { return *log_; }
  Metrics& metrics() { return metrics_; }
  Driver& driver() { return *driver_; }
  Sessions& sessions() { return *sessions_; }
  KeptTexts& kept_texts() { return *kept_texts_; }
  // Held while a text is worked on that no context bounds.
  std::mutex& text_work() { return text_work_; }

  // Well if requests should be sent here (readiness).
  Health health() const;
  // As health(), but a server that drains, or has lost a database, is ok: nothing is gained by
  // starting it anew.
  Health liveness() const;
  // All counts, as Prometheus reads them.
  std::string metrics_text() const;

  // Says at health() that the service drains, so that others are asked; it takes requests still.
  void announce_drain();
  // Takes no requests from here on, and health() says so; those that it has are answered.
  void drain();
  bool is_draining() const { return draining_; }
  // True if requests are being answered. Whoever answers one says so by an Answering.
  bool is_answering() const { return answering_ > 0; }

  // Ends what is being answered, with an error that says why. Returns when that is done.
  void stop();

 private:
  friend class Answering;

  Service(Engine& engine, const Tokenizer& tokenizer, const ServiceOptions& options);

  Engine& engine_;
  const Tokenizer& tokenizer_;
  const ServiceOptions options_;
  const std::int64_t started_;
  std::mutex text_work_;
  AnswerPlanner planner_;
  std::atomic<bool> drain_announced_ = false;
  std::atomic<bool> draining_ = false;
  std::atomic<std::int64_t> answering_ = 0;
  Metrics metrics_{options_.model_name};
  std::unique_ptr<ServerLog> log_;  // requests that the driver ends are written there
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<Sessions> sessions_;
  std::unique_ptr<KeptTexts> kept_texts_;
};

// While it lives, a request is being answered.
class Answering {
 public:
  explicit Answering(Service& service) : service_(service) { ++service_.answering_; }
  ~Answering() { --service_.answering_; }
  Answering(const Answering&) = delete;
  Answering& operator=(const Answering&) = delete;

 private:
  Service& service_;
};

}  // namespace kakeya::service
