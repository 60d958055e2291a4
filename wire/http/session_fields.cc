#include "wire/http/session_fields.h"

#include <fmt/format.h>

#include <boost/beast/core/string.hpp>
#include <string_view>

#include "wire/http/request_text.h"

namespace kakeya::wire {
namespace {

constexpr const char* kFinal = "X-Dynamo-Session-Final";

std::string first_of(const HttpFields& fields, std::initializer_list<const char*> names) {
  for (const char* const name : names) {
    const std::string_view value = view_of(fields[name]);
    if (!value.empty()) return std::string(value);
  }
  return {};
}

}  // namespace

service::Outcome<SessionFields> read_session_fields(const HttpFields& fields) {
  SessionFields read = {.id = first_of(fields, {"X-Dynamo-Session-ID", "X-Claude-Code-Session-ID",
                                                "Session-ID", "X-Session-ID"}),
                        .parent = first_of(fields, {"X-Dynamo-Parent-Session-ID"})};
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
