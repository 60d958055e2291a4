// Who asks, the same for every wire: whatever is kept, shared, counted or queued for somebody goes
// by it.
#pragma once

#include <string>

namespace kakeya::service {

struct Client {
  std::string key = {};      // the name of the key; empty: none is asked for
  std::string address = {};  // the peer's, or that for which a trusted proxy asks

  // Stands for the client: in turns, as the owner of what is kept, and in the prefix cache.
  const std::string& name() const { return key.empty() ? address : key; }
};

}  // namespace kakeya::service
