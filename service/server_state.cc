#include "service/server_state.h"

#include <string>

#include "base/status.h"
#include "service/replica_name.h"

namespace kakeya::service {

ServerState::ServerState(const ServiceOptions& options)
    : started_(std::chrono::duration_cast<std::chrono::seconds>(
                   std::chrono::system_clock::now().time_since_epoch())
                   .count()),
      request_timeout_(options.request_timeout) {}

Status ServerState::check(const ServiceOptions& options) {
  KAKEYA_TRY(ServerLog::open(options.log_file, options.log_level));
  // Without a name ids have none.
  const std::string& name = options.sessions.replica_name;
  return name.empty() ? Status() : check_replica_name(name);
}

Result<std::shared_ptr<ServerState>> ServerState::open(const ServiceOptions& options) {
  KAKEYA_TRY(check(options));
  std::shared_ptr<ServerState> server(new ServerState(options));
  KAKEYA_ASSIGN_OR_RETURN(server->log_, ServerLog::open(options.log_file, options.log_level));
  KAKEYA_ASSIGN_OR_RETURN(server->kept_texts_,
                          KeptTexts::open(options.sessions.folder, KeptTexts::kMostTexts,
                                          KeptTexts::kMostBytes, server->report_failures()));
  return server;
}

ReportFailure ServerState::report_failures() {
  return [this](const Error& why) {
    log_->add(LogLevel::kWarn, "a database failed",
              {{"error", status_code_name(why.code())}, {"why", why.message()}});
  };
}

MetricFamilies ServerState::metrics() const {
  return counts_.collect(log_->lost());
}

void ServerState::announce_drain() {
  drain_announced_ = true;
  log_->add(LogLevel::kInfo, "drain announced");
}

void ServerState::drain() {
  draining_ = true;
  log_->add(LogLevel::kInfo, "draining");
}

}  // namespace kakeya::service
