// The options of a service, whatever carries it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kakeya/scheduler.h"
#include "service/sessions/sessions_options.h"

namespace kakeya::service {

enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarn };

struct ServiceOptions {
  std::string model_name = {};            // what requests call the model
  std::vector<std::string> aliases = {};  // further names that they may call it
  std::int64_t draft_length = -1;         // of every request: kAutoDraftLength
  SchedulerOptions scheduler = {};
  std::string log_file = {};             // ServerLog::open(); empty: none, "-": standard output
  LogLevel log_level = LogLevel::kInfo;  // lines below are left out
  // The most time of a request; it may ask for less. 0: any.
  std::chrono::duration<double> request_timeout{0.0};
  std::chrono::milliseconds watchdog{30000};  // most of a pass, else Service::health(); 0: any
  // Tokens of an answer that its reader may leave unread.
  std::size_t most_unread_tokens = 1024;
  SessionsOptions sessions = {};
  bool shared_prompt_cache = false;  // by all clients; else each has its own
};

}  // namespace kakeya::service
