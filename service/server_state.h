// The parts of a server that belong to no model: its log, stored responses, counts and whether it
// drains.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "kakeya/status.h"
#include "service/metrics.h"
#include "service/server_log.h"
#include "service/service_options.h"
#include "service/sessions/database.h"
#include "service/sessions/kept_texts.h"

namespace kakeya::service {

// Thread-safe.
class ServerState {
 public:
  // Errors: as check() and KeptTexts::open().
  static Result<std::shared_ptr<ServerState>> open(const ServiceOptions& options);

  // Checks the options as open() does, before there is a model. Errors: as ServerLog::open();
  // kInvalidArgument for the name of a replica.
  static Status check(const ServiceOptions& options);

  std::int64_t started() const { return started_; }  // Unix time
  // The most time of a request; 0: any.
  std::chrono::duration<double> request_timeout() const { return request_timeout_; }
  ServerLog& log() { return *log_; }
  KeptTexts& kept_texts() { return *kept_texts_; }
  HttpCounts& counts() { return counts_; }
  // The counts of the server itself, for metrics_text().
  MetricFamilies metrics() const;
  // Writes failures of databases to the log.
  ReportFailure report_failures();

  // Has the server say that it drains, so that others are asked; it takes requests still.
  void announce_drain();
  // Has the server take no requests from here on; those that it has are answered.
  void drain();
  bool has_announced_drain() const { return draining_ || drain_announced_; }
  bool is_draining() const { return draining_; }
  // True if requests are being answered. Whoever answers one says so by an Answering.
  bool is_answering() const { return answering_ > 0; }

 private:
  friend class Answering;

  explicit ServerState(const ServiceOptions& options);

  const std::int64_t started_;
  const std::chrono::duration<double> request_timeout_;
  std::atomic<bool> drain_announced_ = false;
  std::atomic<bool> draining_ = false;
  std::atomic<std::int64_t> answering_ = 0;
  HttpCounts counts_;
  std::unique_ptr<ServerLog> log_;
  std::unique_ptr<KeptTexts> kept_texts_;
};

// While it lives, a request is being answered.
class Answering {
 public:
  explicit Answering(ServerState& server) : server_(server) { ++server_.answering_; }
  ~Answering() { --server_.answering_; }
  Answering(const Answering&) = delete;
  Answering& operator=(const Answering&) = delete;

 private:
  ServerState& server_;
};

}  // namespace kakeya::service
