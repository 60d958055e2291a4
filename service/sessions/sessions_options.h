// The options of the sessions that a service keeps.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace kakeya::service {

struct SessionsOptions {
  std::string folder = {};  // of catalogue and kept texts; empty: in memory
  // The name that ids of sessions and stored responses have; empty: none (replica_name.h).
  std::string replica_name = {};
  std::int64_t most_sessions = 1024;  // of one owner
  // The time after which a session that nobody used ends. 0: never.
  std::chrono::duration<double> idle_limit{0.0};
};

}  // namespace kakeya::service
