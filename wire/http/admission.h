// Whom a server lets in: what is looked at in a request's header before anything more is read.
#pragma once

#include <boost/beast/http/message.hpp>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "service/client.h"
#include "wire/http/access.h"

namespace kakeya::wire {

using HttpFields = boost::beast::http::request_header<>;

// Refuses a body that is framed in another way than by one length or by chunks: what it is would be
// read as the next request. The parser has seen to lengths.
tl::expected<void, Denial> check_framing(const HttpFields& fields);

// Refuses a request without one name of this server in Host: a page in somebody's browser may reach
// this machine by a name of its own.
tl::expected<void, Denial> check_host(const Access& access, const HttpFields& fields);

// The address of the client for which `peer` asks (TrustedProxies::client_of()).
std::string client_address(const Access& access, const std::string& peer, const HttpFields& fields);

// Lets in who has a key, and tells whose it is: as Access::admit().
tl::expected<void, Denial> check_key(Access& access,
                                     const HttpFields& fields,
                                     service::Client& client);

// The moment at which a request has to be answered, none if it may take any time: X-Request-Timeout
// in seconds, at most `limit` of them if that is above 0.
using Deadline = std::optional<std::chrono::steady_clock::time_point>;
tl::expected<Deadline, Denial> read_deadline(const HttpFields& fields,
                                             std::chrono::duration<double> limit);

}  // namespace kakeya::wire
