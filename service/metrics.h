// The counts of a server, as Prometheus reads them (GET /metrics).
#pragma once

#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kakeya/memory.h"
#include "kakeya/scheduler.h"

namespace kakeya::service {

using MetricFamilies = std::vector<prometheus::MetricFamily>;

// A service's account of itself at present.
struct ServiceCounts {
  std::uint64_t memory_limit = 0;     // Engine::memory_limit()
  std::int64_t stalls = 0;            // Driver::stalls()
  std::int64_t sessions = 0;          // Sessions::count()
  std::int64_t expired_sessions = 0;  // Sessions::expired()
  std::int64_t damaged_databases = 0;
};

// Counts of a server of HTTP, whichever model is asked. Thread-safe.
class HttpCounts {
 public:
  HttpCounts();

  // An answer of this HTTP status was begun.
  void count_response(unsigned status);
  // A request with this key was let in.
  void count_request(const std::string& key_name);

  // All of it, with the lines that the log has lost.
  MetricFamilies collect(std::uint64_t lost_log_lines) const;

 private:
  prometheus::Registry registry_;
  prometheus::Family<prometheus::Counter>* responses_;
  prometheus::Family<prometheus::Counter>* requests_;
};

// Counts of a model. Thread-safe. Beside names of its own it has those of vLLM's metrics that
// routers, autoscalers and dashboards read (Gateway API inference extension, llm-d,
// production-stack, KEDA), with the label model_name.
class Metrics {
 public:
  explicit Metrics(std::string model_name);

  // Observe the time from a request's arrival to its first token, and between the mails of tokens
  // that follow.
  void observe_first_token(double seconds) { first_token_->Observe(seconds); }
  void observe_gap(double seconds) { gap_->Observe(seconds); }

  // All of it, with what scheduler, ledger and service say now.
  MetricFamilies collect(const SchedulerStatistics& scheduler,
                         const Footprint& memory,
                         const PromptCacheStatistics& cache,
                         const ServiceCounts& service) const;

 private:
  const std::string model_name_;
  prometheus::Registry registry_;
  prometheus::Histogram* first_token_;
  prometheus::Histogram* gap_;
};

// Adds the label model_name to all of a model's metrics that have none.
void label_families(const std::string& model_name, MetricFamilies& families);

// The counts of a server and of its models in the text format of Prometheus; families of one name
// become one.
std::string metrics_text(std::vector<MetricFamilies> parts);

}  // namespace kakeya::service
