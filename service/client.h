// Who asks, the same for every wire: whatever is kept, shared, counted or queued for somebody goes
// by it.
#pragma once

#include <optional>
#include <string>

namespace kakeya::service {

struct Client {
  std::string key = {};      // the name of the key; empty: none is asked for
  std::string address = {};  // the peer's, or that for which a trusted proxy asks

  // The lowest number, the most urgent, that its requests may have as priority; none: any.
  std::optional<int> most_urgent = {};

  // Stands for the client: in turns, as the owner of what is kept, and in the prefix cache.
  const std::string& name() const { return key.empty() ? address : key; }
};

}  // namespace kakeya::service
