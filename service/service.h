// Answers requests for one model, whatever carries them: its engine, the thread that drives its
// scheduler, its sessions and counts. HTTP and every other wire share it.
#pragma once

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
#include "service/server_state.h"
#include "service/service_options.h"
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
  // Creates a service of `server`; none: of a server of its own. Errors: as ServerState::open(),
  // Engine::tokenizer(), Engine::create_scheduler() and Sessions::open(); kResourceExhausted
  // without memory for the smallest request.
  static Result<std::unique_ptr<Service>> create(Engine& engine,
                                                 const ServiceOptions& options,
                                                 std::shared_ptr<ServerState> server = nullptr);
  // Creates a service over a scheduler of another kind, with the engine's tokens.
  static Result<std::unique_ptr<Service>> create(Engine& engine,
                                                 const ServiceOptions& options,
                                                 std::shared_ptr<ServerState> server,
                                                 std::unique_ptr<Scheduler> scheduler);

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
  ServerState& server() const { return *server_; }
  const std::shared_ptr<ServerState>& shared_server() const { return server_; }
  Metrics& metrics() { return metrics_; }
  Driver& driver() { return *driver_; }
  Sessions& sessions() { return *sessions_; }
  // Held while a text is worked on that no context bounds.
  std::mutex& text_work() { return text_work_; }

  // Well if requests for this model can be answered; "degraded" if it has lost a database.
  Health health() const;
  // As health(), but a lost database is ok: nothing is gained by starting it anew.
  Health liveness() const;
  // The counts of this model, for metrics_text().
  MetricFamilies metric_families() const;

  // Ends what is being answered, with an error that says why. Returns when that is done.
  void stop();

 private:
  Service(Engine& engine,
          const Tokenizer& tokenizer,
          const ServiceOptions& options,
          std::shared_ptr<ServerState> server);

  Engine& engine_;
  const Tokenizer& tokenizer_;
  const ServiceOptions options_;
  // Requests that the driver ends are written to its log.
  const std::shared_ptr<ServerState> server_;
  std::mutex text_work_;
  AnswerPlanner planner_;
  Metrics metrics_{options_.model_name};
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<Sessions> sessions_;
};

}  // namespace kakeya::service
