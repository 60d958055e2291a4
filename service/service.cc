#include "service/service.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/status.h"
#include "service/replica_name.h"

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

ReportFailure report_to(ServerLog& log) {
  return [&log](const Error& why) {
    log.add(LogLevel::kWarn, "a database failed",
            {{"error", status_code_name(why.code())}, {"why", why.message()}});
  };
}

}  // namespace

Service::Service(Engine& engine, const Tokenizer& tokenizer, const ServiceOptions& options)
    : engine_(engine),
      tokenizer_(tokenizer),
      options_(options),
      started_(std::chrono::duration_cast<std::chrono::seconds>(
                   std::chrono::system_clock::now().time_since_epoch())
                   .count()),
      planner_(engine) {}

Service::~Service() {
  stop();
}

Result<std::unique_ptr<Service>> Service::create(Engine& engine, const ServiceOptions& options) {
  KAKEYA_TRY(check(options));
  KAKEYA_ASSIGN_OR_RETURN(auto scheduler, engine.create_scheduler(options.scheduler));
  KAKEYA_TRY(check_memory(*scheduler));
  return create(engine, options, std::move(scheduler));
}

Result<std::unique_ptr<Service>> Service::create(Engine& engine,
                                                 const ServiceOptions& options,
                                                 std::unique_ptr<Scheduler> scheduler) {
  KAKEYA_ASSIGN_OR_RETURN(auto log, ServerLog::open(options.log_file, options.log_level));
  KAKEYA_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, engine.tokenizer());
  std::unique_ptr<Service> service(new Service(engine, *tokenizer, options));
  service->log_ = std::move(log);
  service->driver_ = Driver::create(std::move(scheduler), watch_options(options, service->log()));
  KAKEYA_ASSIGN_OR_RETURN(
      service->sessions_,
      Sessions::open(engine, *service->driver_, options.sessions, options.most_unread_tokens,
                     service->cache_scopes(), report_to(service->log())));
  KAKEYA_ASSIGN_OR_RETURN(service->kept_texts_,
                          KeptTexts::open(options.sessions.folder, KeptTexts::kMostTexts,
                                          KeptTexts::kMostBytes, report_to(service->log())));
  return service;
}

Status Service::check(const ServiceOptions& options) {
  KAKEYA_TRY(ServerLog::open(options.log_file, options.log_level));
  // Without a name ids have none.
  const std::string& name = options.sessions.replica_name;
  return name.empty() ? Status() : check_replica_name(name);
}

void Service::stop() {
  planner_.stop();
  driver_->stop();
}

Health Service::health() const {
  if (draining_ || drain_announced_) return {"draining", "the server is shutting down"};
  Health health = liveness();
  if (!health.is_well()) return health;
  if (sessions_->is_damaged()) return {"degraded", "the catalogue of sessions is damaged"};
  if (kept_texts_->is_damaged()) return {"degraded", "the store of responses is damaged"};
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

std::string Service::metrics_text() const {
  return metrics_.text(driver_->statistics(), engine_.footprint(),
                       engine_.prompt_cache_statistics(),
                       {.memory_limit = engine_.memory_limit(),
                        .lost_log_lines = log_->lost(),
                        .stalls = driver_->stalls(),
                        .sessions = sessions_->count(),
                        .expired_sessions = sessions_->expired(),
                        .damaged_databases = std::int64_t{sessions_->is_damaged()} +
                                             std::int64_t{kept_texts_->is_damaged()}});
}

void Service::announce_drain() {
  drain_announced_ = true;
  log_->add(LogLevel::kInfo, "drain announced");
}

void Service::drain() {
  draining_ = true;
  log_->add(LogLevel::kInfo, "draining");
}

}  // namespace kakeya::service
