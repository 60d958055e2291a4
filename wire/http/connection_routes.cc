// The table of routes: the function that answers each path.
#include <fmt/format.h>

#include <boost/beast/core/string.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <iterator>
#include <string>

#include "wire/http/connection.h"
#include "wire/http/page.h"
#include "wire/http/routes.h"
#include "wire/openai/completion_read.h"
#include "wire/openai/text_routes.h"

namespace kakeya::server {

namespace http = boost::beast::http;

struct Connection::Route {
  std::string_view path;
  http::verb verb;
  bool (Connection::*serve)(const HttpRequest& request);
};

const Connection::Route* Connection::find_route(std::string_view path) {
  static constexpr Route kRoutes[] = {
      {"/v1/chat/completions", http::verb::post, &Connection::chat},
      {"/v1/completions", http::verb::post, &Connection::complete},
      {"/v1/embeddings", http::verb::post, &Connection::embed},
      {"/tokenize", http::verb::post, &Connection::tokenize},
      {"/detokenize", http::verb::post, &Connection::detokenize},
      {"/apply-template", http::verb::post, &Connection::apply_template},
      {"/v1/models", http::verb::get, &Connection::serve_models},
      {"/v1/models/*", http::verb::get, &Connection::serve_model},
      {"/health", http::verb::get, &Connection::serve_health},
      {"/metrics", http::verb::get, &Connection::serve_metrics},
      {"/tokenizer_info", http::verb::get, &Connection::serve_tokenizer},
      {"/props", http::verb::get, &Connection::serve_props}};
  const auto fits = [path](const Route& route) {
    if (!route.path.ends_with('*')) return route.path == path;
    const std::string_view prefix = route.path.substr(0, route.path.size() - 1);
    return path.starts_with(prefix) && path.size() > prefix.size();
  };
  const Route* const found = std::ranges::find_if(kRoutes, fits);
  return found == std::end(kRoutes) ? nullptr : found;
}

std::string_view Connection::known_route(std::string_view path) {
  if (find_page_file(path) != nullptr) return path;
  const Route* const found = find_route(path);
  return found != nullptr ? found->path : "other";
}

bool is_quiet(std::string_view path) {
  return path == "/health" || path == "/metrics" || find_page_file(path) != nullptr;
}

// A page's file has no route, and is read as it is.
std::string Connection::allowed_verbs(const Route* route) {
  const bool is_post = route != nullptr && route->verb == http::verb::post;
  return is_post ? "POST, OPTIONS" : "GET, HEAD, OPTIONS";
}

bool Connection::route(const HttpRequest& request) {
  const std::string_view path = path_of(view_of(request.target()));
  const PageFile* const page = find_page_file(path);
  const Route* const found = find_route(path);
  const bool is_options = request.method() == http::verb::options;
  if (is_options && request.target() == "*") return serve_options(nullptr, request);
  if (page == nullptr && found == nullptr) {
    return refuse(
        {.status = StatusCode::kNotFound,
         .message = fmt::format("expected a path as /v1/chat/completions, got {}", quoted(path))});
  }
  if (is_options) return serve_options(found, request);
  const http::verb verb = found != nullptr ? found->verb : http::verb::get;
  if (request.method() != verb && !(is_head_ && verb == http::verb::get)) {
    const std::string allowed = allowed_verbs(found);
    return reply(405,
                 error_json({.message = fmt::format("expected {}, got {}", allowed,
                                                    quoted(view_of(request.method_string())))}),
                 {{"Allow", allowed}});
  }
  if (page != nullptr) return serve_page(*page);
  // Pages of other sites can send what they like, but for this type, without asking first.
  const boost::beast::string_view type = request[http::field::content_type];
  constexpr std::string_view kJson = "application/json";
  if (verb == http::verb::post &&
      !boost::beast::iequals(type.substr(0, kJson.size()), {kJson.data(), kJson.size()})) {
    return reply(415, error_json({.message = fmt::format("Content-Type: expected {}, got {}", kJson,
                                                         quoted(view_of(type))),
                                  .code = "unsupported_media_type"}));
  }
  if (verb == http::verb::post && service_.draining) {
    keep_alive_ = false;
    return refuse({.status = StatusCode::kUnavailable, .message = "the server is shutting down"});
  }
  return (this->*found->serve)(request);
}

bool Connection::serve_options(const Route* route, const HttpRequest& request) {
  const std::string allowed = allowed_verbs(route);
  Headers headers = {{"Allow", allowed}};
  if (!origin_.empty()) {
    const boost::beast::string_view fields = request["Access-Control-Request-Headers"];
    headers.emplace_back("Access-Control-Allow-Methods", allowed);
    if (!fields.empty()) headers.emplace_back("Access-Control-Allow-Headers", view_of(fields));
    headers.emplace_back("Access-Control-Max-Age", "600");
  }
  return reply(204, "", headers);
}

bool Connection::serve_page(const PageFile& page) {
  return reply(200, std::string(page.text),
               {{"Content-Security-Policy", std::string(kPagePolicy)},
                {"X-Content-Type-Options", "nosniff"},
                {"Referrer-Policy", "no-referrer"},
                {"Cache-Control", "no-cache"}},
               page.content_type);
}

bool Connection::serve_models(const HttpRequest&) {
  return reply(
      200, models_json(service_.options.model_name, service_.started, context_of(service_.engine)));
}

// Names may have slashes, as "google/gemma", or "%2F" for one.
bool Connection::serve_model(const HttpRequest& request) {
  const std::string_view path = path_of(view_of(request.target()));
  std::string name(path.substr(std::string_view("/v1/models/").size()));
  for (std::size_t at = name.find("%2F"); at != std::string::npos; at = name.find("%2F")) {
    name.replace(at, 3, "/");
  }
  const auto known = check_model(service_.options.model_name, name);
  if (!known) return refuse(known.error());
  return reply(
      200, model_json(service_.options.model_name, service_.started, context_of(service_.engine)));
}

bool Connection::serve_props(const HttpRequest&) {
  return reply(200, props_json(service_.engine, service_.options));
}

bool Connection::serve_tokenizer(const HttpRequest&) {
  return reply_with(tokenizer_json(service_.engine));
}

bool Connection::serve_metrics(const HttpRequest&) {
  return reply(200,
               service_.metrics.text(
                   service_.driver.statistics(), service_.engine.footprint(),
                   service_.engine.prompt_cache_statistics(),
                   {.lost_log_lines = service_.log.lost(), .stalls = service_.driver.stalls()}),
               {}, "text/plain; version=0.0.4");
}

bool Connection::serve_health(const HttpRequest&) {
  const auto unwell = [this](std::string_view status, const std::string& reason) {
    return reply(503, json_text({{"status", status}, {"reason", reason}}));
  };
  if (service_.draining) return unwell("draining", "the server is shutting down");
  if (!service_.driver.healthy()) return unwell("unavailable", "no requests are taken");
  const std::chrono::duration<double> limit = service_.options.watchdog;
  if (service_.driver.stalled()) {
    return unwell("stalled", fmt::format("a pass takes longer than {} s", limit.count()));
  }
  if (service_.driver.stuck()) {
    return unwell("stalled", fmt::format("no request has gone on for {} s", limit.count()));
  }
  return reply(200, R"({"status":"ok"})");
}

bool Connection::chat(const HttpRequest& request) {
  return answer(read_chat_request(request.body()));
}

bool Connection::complete(const HttpRequest& request) {
  return answer(read_completion_request(request.body()));
}

bool Connection::tokenize(const HttpRequest& request) {
  const std::lock_guard lock(service_.text_work);
  return reply_with(server::tokenize(service_.engine, request.body()));
}

bool Connection::detokenize(const HttpRequest& request) {
  const std::lock_guard lock(service_.text_work);
  return reply_with(server::detokenize(service_.engine, request.body()));
}

bool Connection::apply_template(const HttpRequest& request) {
  const std::lock_guard lock(service_.text_work);
  return reply_with(apply_template_route(service_.engine, request.body()));
}

}  // namespace kakeya::server
