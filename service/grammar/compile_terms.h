// The terms on which a grammar is compiled.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace kakeya::service {

// For whom a grammar is compiled, and until when he waits for it.
struct CompileTerms {
  std::string client = {};
  std::optional<std::chrono::steady_clock::time_point> deadline = {};
};

}  // namespace kakeya::service
