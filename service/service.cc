#include "service/service.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/status.h"

namespace kakeya::service {
namespace {

// Fails if there is no memory for the smallest request: a service that could answer nobody does not
// start.
Status check_memory(Scheduler& scheduler) {
  KAKEYA_ASSIGN_OR_RETURN(const RequestId id,
                          scheduler.add({.prompt = {0}, .generate = {.max_tokens = 1}}));
  KAKEYA_TRY(scheduler.cancel(id));
  KAKEYA_TRY(scheduler.step());
  return {};
}

WatchOptions watch_options(const ServiceOptions& options, ServerLog& log) {
  const std::chrono::duration<double> limit = options.watchdog;
  return {
      .limit = options.watchdog, .on_change = [&log, seconds = limit.count()](bool stalled) {
        log.add(LogLevel::kWarn, stalled ? "stalled" : "steps go on", {{"limit_seconds", seconds}});
      }};
}

}  // namespace

Service::Service(Engine& engine,
                 const Tokenizer& tokenizer,
                 const ServiceOptions& options,
                 std::shared_ptr<ServerState> server)
    : engine_(engine),
      tokenizer_(tokenizer),
      options_(options),
      server_(std::move(server)),
      planner_(engine) {}

Service::~Service() {
  stop();
}

Result<std::unique_ptr<Service>> Service::create(Engine& engine,
                                                 const ServiceOptions& options,
                                                 std::shared_ptr<ServerState> server) {
  if (server == nullptr) {
    KAKEYA_ASSIGN_OR_RETURN(server, ServerState::open(options));
  }
  KAKEYA_ASSIGN_OR_RETURN(auto scheduler, engine.create_scheduler(options.scheduler));
  KAKEYA_TRY(check_memory(*scheduler));
  return create(engine, options, std::move(server), std::move(scheduler));
}

Result<std::unique_ptr<Service>> Service::create(Engine& engine,
                                                 const ServiceOptions& options,
                                                 std::shared_ptr<ServerState> server,
                                                 std::unique_ptr<Scheduler> scheduler) {
  KAKEYA_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, engine.tokenizer());
  std::unique_ptr<Service> service(new Service(engine, *tokenizer, options, std::move(server)));
  ServerState& state = service->server();
  service->driver_ = Driver::create(std::move(scheduler), watch_options(options, state.log()));
  KAKEYA_ASSIGN_OR_RETURN(
      service->sessions_,
      Sessions::open(engine, *service->driver_, options.sessions, options.most_unread_tokens,
                     service->cache_scopes(), state.report_failures()));
  return service;
}

void Service::stop() {
  planner_.stop();
  driver_->stop();
}

Health Service::health() const {
  Health health = liveness();
  if (!health.is_well()) return health;
  if (sessions_->is_damaged()) return {"degraded", "the catalogue of sessions is damaged"};
  if (server_->kept_texts().is_damaged()) {
    return {"degraded", "the store of responses is damaged"};
  }
  return health;
}

Health Service::liveness() const {
  if (!driver_->healthy()) return {"unavailable", "no requests are taken"};
  const std::chrono::duration<double> limit = options_.watchdog;
  if (driver_->stalled()) {
    return {"stalled", fmt::format("a pass takes longer than {} s", limit.count())};
  }
  if (driver_->stuck()) {
    return {"stalled", fmt::format("no request has gone on for {} s", limit.count())};
  }
  return {};
}

MetricFamilies Service::metric_families() const {
  return metrics_.collect(driver_->statistics(), engine_.footprint(),
                          engine_.prompt_cache_statistics(),
                          {.memory_limit = engine_.memory_limit(),
                           .stalls = driver_->stalls(),
                           .sessions = sessions_->count(),
                           .expired_sessions = sessions_->expired(),
                           .damaged_databases = std::int64_t{sessions_->is_damaged()} +
                                                std::int64_t{server_->kept_texts().is_damaged()}});
}

}  // namespace kakeya::service
