// Names of this machine as it calls itself, which no other machine can reach.
#pragma once

#include <string>
#include <string_view>

#include "kakeya/status.h"

namespace kakeya::server {

// The address that `host` means: itself, or 127.0.0.1 for localhost. Errors: kInvalidArgument for
// anything but an address of the loopback.
Result<std::string> local_address(const std::string& host);

// Whether the field Host of a request, with or without a port, names the loopback. An empty one
// does: older clients send none.
bool is_local_host(std::string_view host);

}  // namespace kakeya::server
