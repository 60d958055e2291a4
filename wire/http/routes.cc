#include "wire/http/routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http.hpp>
#include <utility>

#include "wire/http/exchange.h"
#include "wire/http/operator_routes.h"
#include "wire/http/page.h"
#include "wire/http/request_text.h"

namespace kakeya::wire {
namespace {

namespace http = boost::beast::http;

bool fits(const Route& route, std::string_view path) {
  if (!route.path.ends_with('*')) return route.path == path;
  const std::string_view prefix = route.path.substr(0, route.path.size() - 1);
  return path.starts_with(prefix) && path.size() > prefix.size();
}

bool answer_options(Exchange& exchange, std::string_view path) {
  const std::string allowed = exchange.site().routes.allowed_verbs(path);
  Exchange::Headers headers = {{"Allow", allowed}};
  if (!exchange.origin().empty()) {
    const boost::beast::string_view fields = exchange.request()["Access-Control-Request-Headers"];
    headers.emplace_back("Access-Control-Allow-Methods", allowed);
    if (!fields.empty()) headers.emplace_back("Access-Control-Allow-Headers", view_of(fields));
    headers.emplace_back("Access-Control-Max-Age", "600");
  }
  return exchange.reply(204, "", headers);
}

bool is_json(boost::beast::string_view content_type) {
  const boost::beast::string_view json = "application/json";
  return boost::beast::iequals(content_type.substr(0, json.size()), json);
}

}  // namespace

RouteTable::RouteTable(std::vector<Dialect> dialects) : dialects_(std::move(dialects)) {
  dialects_.push_back({operator_routes(), dialects_.front().error_body});
}

RouteTable::Found RouteTable::find(std::string_view path, http::verb verb) const {
  const http::verb asked = verb == http::verb::head ? http::verb::get : verb;
  for (const Dialect& dialect : dialects_) {
    const Route* found = nullptr;
    for (const Route& route : dialect.routes) {
      if (!fits(route, path)) continue;
      if (found == nullptr || (route.verb == asked && found->verb != asked)) found = &route;
    }
    if (found != nullptr) return {found, dialect.error_body};
  }
  for (const Dialect& dialect : dialects_) {
    if (!dialect.prefix.empty() && path.starts_with(dialect.prefix)) {
      return {nullptr, dialect.error_body};
    }
  }
  return {nullptr, dialects_.front().error_body};
}

std::string RouteTable::allowed_verbs(std::string_view path) const {
  std::string verbs;
  for (const Dialect& dialect : dialects_) {
    for (const Route& route : dialect.routes) {
      if (!fits(route, path)) continue;
      verbs += view_of(http::to_string(route.verb));
      verbs += route.verb == http::verb::get ? ", HEAD, " : ", ";
    }
    if (!verbs.empty()) break;
  }
  return (verbs.empty() ? "GET, HEAD, " : verbs) + "OPTIONS";
}

bool dispatch(Exchange& exchange) {
  const std::string_view path = exchange.path();
  const PageFile* const page = find_page_file(path);
  const Route* const route = exchange.route();
  const auto& request = exchange.request();
  const bool is_options = request.method() == http::verb::options;
  if (is_options && request.target() == "*") return answer_options(exchange, "*");
  if (page == nullptr && route == nullptr) {
    return exchange.refuse(
        {.status = StatusCode::kNotFound,
         .message = fmt::format("expected a path as {}, got {}", exchange.site().routes.example(),
                                quoted(path))});
  }
  if (is_options) return answer_options(exchange, path);
  const http::verb verb = route != nullptr ? route->verb : http::verb::get;
  const bool is_head = request.method() == http::verb::head && verb == http::verb::get;
  if (request.method() != verb && !is_head) {
    const std::string allowed = exchange.site().routes.allowed_verbs(path);
    return exchange.refuse_with(405,
                                {.message = fmt::format("expected {}, got {}", allowed,
                                                        quoted(view_of(request.method_string())))},
                                {{"Allow", allowed}});
  }
  if (page != nullptr) return serve_page(exchange, *page);
  // Pages of other sites can send what they like, but for this type, without asking first.
  const boost::beast::string_view type = request[http::field::content_type];
  const bool is_page = !request[http::field::origin].empty() && exchange.origin().empty();
  const bool takes_type = is_json(type) || (route->takes_any_type && !is_page);
  if (verb == http::verb::post && !takes_type) {
    return exchange.refuse_with(
        415, {.message = fmt::format("Content-Type: expected application/json, got {}",
                                     quoted(view_of(type))),
              .code = "unsupported_media_type"});
  }
  const boost::beast::string_view encoding = request[http::field::content_encoding];
  if (!encoding.empty() && !boost::beast::iequals(encoding, "identity")) {
    return exchange.refuse_with(
        415, {.message = fmt::format("Content-Encoding: expected a body as it is, got {}",
                                     quoted(view_of(encoding))),
              .code = "unsupported_media_type"});
  }
  if (verb == http::verb::post && exchange.server().is_draining()) {
    exchange.close_after();
    return exchange.refuse(
        {.status = StatusCode::kUnavailable, .message = "the server is shutting down"});
  }
  // The client has been told, or has gone: its connection goes on if there is one.
  if (route->needs_model && !exchange.choose_model()) return !exchange.watch().is_gone();
  return route->handle(exchange);
}

}  // namespace kakeya::wire
