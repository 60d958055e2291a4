#include "service/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kakeya::service {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// A value of a gauge or a counter.
ClientMetric metric_of(double value, std::vector<ClientMetric::Label> labels = {}) {
  ClientMetric metric;
  metric.label = std::move(labels);
  metric.counter.value = value;
  metric.gauge.value = value;
  return metric;
}

MetricFamily family_of(const char* name, const char* help, MetricType type, ClientMetric metric) {
  return {.name = name, .help = help, .type = type, .metric = {std::move(metric)}};
}

// Bytes that are reserved, a class of the ledger a label.
MetricFamily memory_family(const Footprint& memory) {
  MetricFamily family = {.name = "kakeya_memory_bytes",
                         .help = "Bytes reserved, by class of the memory ledger",
                         .type = MetricType::Gauge,
                         .metric = {}};
  for (std::size_t i = 0; i < kNumMemoryClasses; ++i) {
    const auto memory_class = static_cast<MemoryClass>(i);
    family.metric.push_back(metric_of(static_cast<double>(memory.reserved_bytes(memory_class)),
                                      {{"class", std::string(memory_class_name(memory_class))}}));
  }
  return family;
}

// Rounds of answers, with what decided about their drafts as a label.
MetricFamily rounds_family(const SchedulerStatistics& scheduler) {
  MetricFamily family = {.name = "kakeya_rounds_total",
                         .help = "Passes of answers, by why they drafted as much as they did",
                         .type = MetricType::Counter,
                         .metric = {}};
  for (std::size_t i = 0; i < kDraftReasons; ++i) {
    const auto reason = static_cast<DraftReason>(i);
    family.metric.push_back(metric_of(static_cast<double>(scheduler.rounds[i]),
                                      {{"reason", std::string(draft_reason_name(reason))}}));
  }
  return family;
}

// The part of the memory for keys and values that requests have, 0 to 1. What the prefix cache
// holds is free for them.
double kv_cache_usage(const Footprint& memory, std::uint64_t limit) {
  double used = 0.0;
  for (const MemoryClass of_requests : {MemoryClass::kKvSliding, MemoryClass::kKvFull,
                                        MemoryClass::kDrafter, MemoryClass::kCodes}) {
    used += static_cast<double>(memory.reserved_bytes(of_requests));
  }
  const double others = static_cast<double>(memory.total_reserved()) - used -
                        static_cast<double>(memory.reserved_bytes(MemoryClass::kPromptCache));
  const double room = static_cast<double>(limit) - others;
  return room <= used ? 1.0 : used / room;
}

constexpr const char* kFirstTokenSeconds = "kakeya_first_token_seconds";
constexpr const char* kTokenGapSeconds = "kakeya_token_gap_seconds";
constexpr std::pair<std::string_view, const char*> kVllmHistograms[] = {
    {kFirstTokenSeconds, "vllm:time_to_first_token_seconds"},
    {kTokenGapSeconds, "vllm:inter_token_latency_seconds"},
};

// Adds metrics by the names that vLLM gives them, for routers, autoscalers and dashboards made for
// it. `families` has the histograms of ours.
void add_vllm_families(const std::string& model_name,
                       const SchedulerStatistics& scheduler,
                       const PromptCacheStatistics& cache,
                       double cache_usage,
                       std::vector<MetricFamily>& families) {
  const auto add = [&](MetricType type, const char* name, const char* help, auto value) {
    families.push_back(family_of(
        name, help, type, metric_of(static_cast<double>(value), {{"model_name", model_name}})));
  };
  using enum MetricType;
  add(Gauge, "vllm:num_requests_waiting", "As kakeya_requests_waiting", scheduler.waiting);
  add(Gauge, "vllm:num_requests_running", "As kakeya_requests_running", scheduler.running);
  add(Gauge, "vllm:kv_cache_usage_perc",
      "Part of the memory for keys and values that requests have, 0 to 1", cache_usage);
  const std::int64_t taken_over = cache.tokens + scheduler.shared_rows;
  const std::int64_t prompts = scheduler.prompt_rows + taken_over;
  add(Counter, "vllm:prompt_tokens_total", "Prompt tokens, run or taken over", prompts);
  add(Counter, "vllm:generation_tokens_total", "As kakeya_tokens_total", scheduler.tokens);
  add(Counter, "vllm:num_preemptions_total", "As kakeya_preemptions_total", scheduler.preemptions);
  add(Counter, "vllm:prefix_cache_queries_total", "Prompt tokens, run or taken over", prompts);
  add(Counter, "vllm:prefix_cache_hits_total",
      "Prompt tokens taken over, from the prefix cache or from requests that ran", taken_over);
  for (const auto& [ours, theirs] : kVllmHistograms) {
    MetricFamily family = *std::ranges::find(families, ours, &MetricFamily::name);
    family.name = theirs;
    for (ClientMetric& metric : family.metric) metric.label = {{"model_name", model_name}};
    families.push_back(std::move(family));
  }
}

// Seconds: from a fast pass to a long prompt.
const prometheus::Histogram::BucketBoundaries kFirstTokenBuckets = {
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120};
const prometheus::Histogram::BucketBoundaries kGapBuckets = {
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5};

}  // namespace

HttpCounts::HttpCounts()
    : responses_(&prometheus::BuildCounter()
                      .Name("kakeya_http_responses_total")
                      .Help("Responses begun, by HTTP status")
                      .Register(registry_)),
      requests_(&prometheus::BuildCounter()
                     .Name("kakeya_http_requests_total")
                     .Help("Requests let in, by the name of their key")
                     .Register(registry_)) {}

void HttpCounts::count_response(unsigned status) {
  responses_->Add({{"status", std::to_string(status)}}).Increment();
}

void HttpCounts::count_request(const std::string& key_name) {
  requests_->Add({{"key", key_name}}).Increment();
}

MetricFamilies HttpCounts::collect(std::uint64_t lost_log_lines) const {
  MetricFamilies families = registry_.Collect();
  families.push_back(
      family_of("kakeya_log_lines_lost_total", "Lines of the log that were dropped or not written",
                MetricType::Counter, metric_of(static_cast<double>(lost_log_lines))));
  return families;
}

Metrics::Metrics(std::string model_name)
    : model_name_(std::move(model_name)),
      first_token_(&prometheus::BuildHistogram()
                        .Name(kFirstTokenSeconds)
                        .Help("From a request's arrival to its first token")
                        .Register(registry_)
                        .Add({}, kFirstTokenBuckets)),
      gap_(&prometheus::BuildHistogram()
                .Name(kTokenGapSeconds)
                .Help("Between deliveries of tokens of an answer")
                .Register(registry_)
                .Add({}, kGapBuckets)) {}

MetricFamilies Metrics::collect(const SchedulerStatistics& scheduler,
                                const Footprint& memory,
                                const PromptCacheStatistics& cache,
                                const ServiceCounts& service) const {
  MetricFamilies families = registry_.Collect();
  const auto gauge = [&](const char* name, const char* help, std::int64_t value) {
    families.push_back(
        family_of(name, help, MetricType::Gauge, metric_of(static_cast<double>(value))));
  };
  const auto counter = [&](const char* name, const char* help, std::int64_t value) {
    families.push_back(
        family_of(name, help, MetricType::Counter, metric_of(static_cast<double>(value))));
  };
  gauge("kakeya_requests_waiting", "Requests that wait for a place", scheduler.waiting);
  gauge("kakeya_requests_running", "Requests that are answered", scheduler.running);
  counter("kakeya_passes_total", "Forward passes of the target", scheduler.passes);
  counter("kakeya_prompt_rows_total", "Prompt tokens that were run", scheduler.prompt_rows);
  counter("kakeya_shared_rows_total", "Prompt tokens taken over from running requests",
          scheduler.shared_rows);
  counter("kakeya_preemptions_total",
          "Times that a request gave its memory to others, to go on later", scheduler.preemptions);
  counter("kakeya_tokens_total", "Tokens generated", scheduler.tokens);
  counter("kakeya_drafted_tokens_total", "Tokens drafted", scheduler.drafted);
  counter("kakeya_accepted_tokens_total", "Drafted tokens that were accepted", scheduler.accepted);
  counter("kakeya_read_bytes_total", "Bytes of weights and cached rows that passes have read",
          static_cast<std::int64_t>(scheduler.bytes));
  gauge("kakeya_prompt_cache_limit_bytes", "Most bytes of the prefix cache; 0: there is none",
        static_cast<std::int64_t>(cache.limit_bytes));
  gauge("kakeya_prompt_cache_bytes", "Bytes that the prefix cache holds",
        static_cast<std::int64_t>(cache.bytes));
  gauge("kakeya_prompt_cache_entries", "Texts that the prefix cache holds", cache.entries);
  counter("kakeya_prompt_cache_lookups_total", "Prompts looked up in the prefix cache",
          cache.lookups);
  counter("kakeya_prompt_cache_hits_total", "Prompts that started from the prefix cache",
          cache.hits);
  counter("kakeya_prompt_cache_tokens_total", "Prompt tokens taken over from the prefix cache",
          cache.tokens);
  gauge("kakeya_prompt_cache_disk_limit_bytes",
        "Most bytes of the prefix cache's folder; 0: there is none",
        static_cast<std::int64_t>(cache.disk_limit_bytes));
  gauge("kakeya_prompt_cache_disk_bytes", "Bytes of the files of the prefix cache",
        static_cast<std::int64_t>(cache.disk_bytes));
  gauge("kakeya_prompt_cache_disk_entries", "Files of the prefix cache", cache.disk_entries);
  counter("kakeya_prompt_cache_disk_hits_total", "Prompts for which files were read",
          cache.disk_hits);
  counter("kakeya_prompt_cache_disk_tokens_total",
          "Prompt tokens taken over from files of the prefix cache", cache.disk_tokens);
  counter("kakeya_prompt_cache_disk_written_total", "Files of the prefix cache written",
          cache.disk_written);
  counter("kakeya_prompt_cache_disk_dropped_total",
          "Texts of the prefix cache that were given up before they were written",
          cache.disk_dropped);
  counter("kakeya_stalls_total", "Passes that took longer than the watchdog's limit",
          service.stalls);
  gauge("kakeya_sessions", "Sessions that are open", service.sessions);
  counter("kakeya_sessions_expired_total", "Sessions that ended because nobody used them",
          service.expired_sessions);
  gauge("kakeya_damaged_databases", "Databases, of sessions and of responses, found damaged",
        service.damaged_databases);
  gauge("kakeya_memory_limit_bytes", "Most bytes of the memory where keys and values lie",
        static_cast<std::int64_t>(std::min<std::uint64_t>(
            service.memory_limit, std::numeric_limits<std::int64_t>::max())));
  families.push_back(memory_family(memory));
  families.push_back(rounds_family(scheduler));
  add_vllm_families(model_name_, scheduler, cache, kv_cache_usage(memory, service.memory_limit),
                    families);
  return families;
}

void label_families(const std::string& model_name, MetricFamilies& families) {
  const auto is_name = [](const ClientMetric::Label& label) { return label.name == "model_name"; };
  for (MetricFamily& family : families) {
    for (ClientMetric& metric : family.metric) {
      if (std::ranges::none_of(metric.label, is_name)) {
        metric.label.push_back({"model_name", model_name});
      }
    }
  }
}

std::string metrics_text(std::vector<MetricFamilies> parts) {
  MetricFamilies all;
  for (MetricFamilies& part : parts) {
    for (MetricFamily& family : part) {
      const auto same = std::ranges::find(all, family.name, &MetricFamily::name);
      if (same == all.end()) {
        all.push_back(std::move(family));
      } else {
        std::ranges::move(family.metric, std::back_inserter(same->metric));
      }
    }
  }
  return prometheus::TextSerializer().Serialize(all);
}

}  // namespace kakeya::service
