// The counts of a server, as Prometheus reads them (GET /metrics).
#pragma once

#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <cstdint>
#include <string>

#include "kakeya/memory.h"
#include "kakeya/scheduler.h"

namespace kakeya::service {

// A server's account of itself at present.
struct ServerCounts {
  std::uint64_t memory_limit = 0;  // Engine::memory_limit()
  std::uint64_t lost_log_lines = 0;
  std::int64_t stalls = 0;            // Driver::stalls()
  std::int64_t sessions = 0;          // Sessions::count()
  std::int64_t expired_sessions = 0;  // Sessions::expired()
  std::int64_t damaged_databases = 0;
};

// Thread-safe. Beside names of its own it has those of vLLM's metrics that routers, autoscalers and
// dashboards read (Gateway API inference extension, llm-d, production-stack, KEDA), with the label
// model_name.
class Metrics {
 public:
  explicit Metrics(std::string model_name);

  // An answer of this HTTP status was begun.
  void count_response(unsigned status);
  // A request with this key was let in.
  void count_request(const std::string& key_name);
  // Observe the time from a request's arrival to its first token, and between the mails of tokens
  // that follow.
  void observe_first_token(double seconds) { first_token_->Observe(seconds); }
  void observe_gap(double seconds) { gap_->Observe(seconds); }

  // All of it in the text format, with what scheduler, ledger and server say now.
  std::string text(const SchedulerStatistics& scheduler,
                   const Footprint& memory,
                   const PromptCacheStatistics& cache,
                   const ServerCounts& server) const;

 private:
  const std::string model_name_;
  prometheus::Registry registry_;
  prometheus::Family<prometheus::Counter>* responses_;
  prometheus::Family<prometheus::Counter>* requests_;
  prometheus::Histogram* first_token_;
  prometheus::Histogram* gap_;
};

}  // namespace kakeya::service
