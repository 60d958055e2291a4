#include "wire/http/session_fields.h"

#include <fmt/format.h>

#include <boost/beast/core/string.hpp>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "service/sessions/sessions.h"
#include "wire/http/request_text.h"

namespace kakeya::wire {
namespace {

constexpr const char* kFinal = "X-Dynamo-Session-Final";

// Reads the first of these fields that is there as the id of a session.
service::Outcome<std::string> read_id(const HttpFields& fields,
                                      std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    const std::string_view value = view_of(fields[name]);
    if (value.empty()) continue;
    const auto checked = service::check_session_id(name, value);
    if (!checked) return tl::unexpected(checked.error());
    return std::string(value);
  }
  return {};
}

}  // namespace

service::Outcome<SessionFields> read_session_fields(const HttpFields& fields) {
  auto id = read_id(
      fields, {"X-Dynamo-Session-ID", "X-Claude-Code-Session-ID", "Session-ID", "X-Session-ID"});
  if (!id) return tl::unexpected(std::move(id).error());
  auto parent = read_id(fields, {"X-Dynamo-Parent-Session-ID"});
  if (!parent) return tl::unexpected(std::move(parent).error());
  SessionFields read = {.id = std::move(*id), .parent = std::move(*parent)};
  const boost::beast::string_view is_final = fields[kFinal];
  if (is_final.empty() || boost::beast::iequals(is_final, "false") || is_final == "0") return read;
  if (!boost::beast::iequals(is_final, "true") && is_final != "1") {
    return tl::unexpected(
        service::Refusal{.message = fmt::format("{}: expected true or false, "
                                                "got {}",
                                                kFinal, quoted(view_of(is_final))),
                         .parameter = kFinal});
  }
  if (read.id.empty()) {
    return tl::unexpected(service::Refusal{
        .message = fmt::format("{}: expected X-Dynamo-Session-ID beside it, got none", kFinal),
        .parameter = kFinal});
  }
  read.is_final = true;
  return read;
}

}  // namespace kakeya::wire
