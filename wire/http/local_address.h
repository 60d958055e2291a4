// Names and addresses of this machine.
#pragma once

#include <string>
#include <string_view>

#include "kakeya/status.h"

namespace kakeya::wire {

// The address in digits that `host` means: itself, or 127.0.0.1 for localhost. Errors:
// kInvalidArgument for anything else.
Result<std::string> listen_address(const std::string& host);

// The field Host of a request without its port, an address of IPv6 without its brackets.
std::string_view without_port(std::string_view host);

// True if a host, with or without a port, names the loopback, which no other machine can reach. An
// empty one does: older clients send none.
bool is_local_host(std::string_view host);

}  // namespace kakeya::wire
