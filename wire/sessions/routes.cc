#include "wire/sessions/routes.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "service/answer_request.h"
#include "service/json_text.h"
#include "service/sessions/sessions.h"
#include "wire/http/exchange.h"
#include "wire/http/json_reader.h"
#include "wire/http/request_text.h"

namespace kakeya::sessions {
namespace {

using boost::beast::http::verb;
using nlohmann::ordered_json;
using service::NewSession;
using service::SessionMode;
using service::SessionRow;
using wire::Exchange;
using wire::Json;
using wire::JsonReader;

constexpr std::string_view kPath = "/v1/sessions/";
constexpr std::int64_t kMostListed = 1000;
constexpr std::int64_t kMostLength = std::int64_t{1} << 30;

ordered_json session_json(const SessionRow& row) {
  ordered_json mode = ordered_json::parse(service::mode_text(row.mode));
  ordered_json json = {{"id", row.id},
                       {"object", "session"},
                       {"label", row.label},
                       {"parent", row.parent.empty() ? ordered_json() : ordered_json(row.parent)},
                       {"tokens", row.tokens},
                       {"created_at", static_cast<std::int64_t>(row.made)},
                       {"last_used_at", static_cast<std::int64_t>(row.used)}};
  json.update(mode);
  return json;
}

void read_text(JsonReader& reader, const Json& body, const char* name, std::string& out) {
  const Json* value = reader.find(body, name);
  if (value == nullptr) return;
  if (!value->is_string()) return reader.refuse(name, "a text", wire::shown(*value));
  out = value->get<std::string>();
}

template <typename Value>
void read_name(JsonReader& reader,
               const Json& body,
               const char* name,
               const char* expected,
               std::optional<Value> (*find)(std::string_view),
               std::optional<Value>& out) {
  const Json* value = reader.find(body, name);
  if (value == nullptr) return;
  if (value->is_string()) out = find(value->get_ref<const std::string&>());
  if (!out) reader.refuse(name, expected, wire::shown(*value));
}

// Refuses the first field that nothing reads.
void check_names(JsonReader& reader, const Json& body, std::vector<std::string_view> names) {
  for (const auto& [name, value] : body.items()) {
    if (std::ranges::find(names, name) == names.end()) {
      reader.refuse(name, "no such field", wire::shown(value));
    }
  }
}

// Refuses another model than the one that the request has found by then.
service::Outcome<void> check_model(Exchange& exchange, JsonReader& reader, const Json& body) {
  std::string model;
  read_text(reader, body, "model", model);
  return service::check_model(exchange.service().options(), model);
}

service::Outcome<NewSession> read_new_session(Exchange& exchange) {
  const auto body = wire::parse_body(exchange.body());
  if (!body) return tl::unexpected(body.error());
  JsonReader reader;
  if (const auto known = check_model(exchange, reader, *body); !known) {
    return tl::unexpected(known.error());
  }
  NewSession wish;
  check_names(reader, *body,
              {"model", "session_id", "label", "decoding", "evicted", "sink", "window"});
  read_text(reader, *body, "session_id", wish.id);
  read_text(reader, *body, "label", wish.label);
  std::optional<service::Decoding> decoding;
  read_name(reader, *body, "decoding", "auto, plain or speculative", service::find_decoding,
            decoding);
  wish.mode.decoding = decoding.value_or(service::Decoding::kAuto);
  read_name(reader, *body, "evicted", "keep, drop or restore", service::find_evicted,
            wish.mode.evicted);
  reader.read(*body, "sink", 0, SessionOptions::kMostKept, wish.mode.sink);
  reader.read(*body, "window", 0, SessionOptions::kMostKept, wish.mode.window);
  if (reader.failed()) return tl::unexpected(reader.problem());
  return wish;
}

struct ForkWish {
  NewSession session;
  std::optional<std::int64_t> length;
};

service::Outcome<ForkWish> read_fork(Exchange& exchange) {
  const auto body = wire::parse_body(exchange.body().empty() ? "{}" : exchange.body());
  if (!body) return tl::unexpected(body.error());
  JsonReader reader;
  if (const auto known = check_model(exchange, reader, *body); !known) {
    return tl::unexpected(known.error());
  }
  ForkWish wish;
  check_names(reader, *body, {"model", "session_id", "label", "length"});
  read_text(reader, *body, "session_id", wish.session.id);
  read_text(reader, *body, "label", wish.session.label);
  reader.read(*body, "length", 0, kMostLength, wish.length);
  if (reader.failed()) return tl::unexpected(reader.problem());
  return wish;
}

// All that stands behind /v1/sessions/.
std::string id_of(const Exchange& exchange) {
  return wire::decoded(exchange.path().substr(kPath.size()));
}

bool reply_session(Exchange& exchange, const service::Outcome<SessionRow>& row) {
  if (!row) return exchange.refuse(row.error());
  return exchange.reply(200, service::json_text(session_json(*row)));
}

bool serve_list(Exchange& exchange) {
  const auto rows = exchange.service().sessions().list(exchange.client().name(), kMostListed);
  if (!rows) return exchange.refuse(rows.error());
  ordered_json list = ordered_json::array();
  for (const SessionRow& row : *rows) list.push_back(session_json(row));
  return exchange.reply(200, service::json_text({{"object", "list"}, {"data", std::move(list)}}));
}

bool serve_new(Exchange& exchange) {
  const auto wish = read_new_session(exchange);
  if (!wish) return exchange.refuse(wish.error());
  return reply_session(exchange,
                       exchange.service().sessions().create(exchange.client().name(), *wish));
}

bool serve_one(Exchange& exchange) {
  service::Sessions& sessions = exchange.service().sessions();
  const std::string id = id_of(exchange);
  const auto row = sessions.find(exchange.client().name(), id);
  if (!row) return exchange.refuse(row.error());
  const auto held = sessions.footprint(exchange.client().name(), id);
  if (!held) return exchange.refuse(held.error());
  ordered_json json = session_json(*row);
  json["footprint"] = {{"cached_tokens", held->cached_tokens},
                       {"memory_bytes", held->memory_bytes},
                       {"disk_bytes", held->disk_bytes}};
  return exchange.reply(200, service::json_text(json));
}

bool serve_action(Exchange& exchange) {
  // A slash of the id's own is written %2F there.
  constexpr std::string_view kFork = "/fork";
  const std::string_view rest = exchange.path().substr(kPath.size());
  if (!rest.ends_with(kFork)) {
    return exchange.refuse(
        {.status = StatusCode::kNotFound,
         .message = "expected /v1/sessions/ID/fork, got another action of a session"});
  }
  const auto wish = read_fork(exchange);
  if (!wish) return exchange.refuse(wish.error());
  const std::string id = wire::decoded(rest.substr(0, rest.size() - kFork.size()));
  return reply_session(exchange, exchange.service().sessions().fork(exchange.client().name(), id,
                                                                    wish->session, wish->length));
}

bool serve_end(Exchange& exchange) {
  const auto row = exchange.service().sessions().close(exchange.client().name(), id_of(exchange));
  if (!row) return exchange.refuse(row.error());
  return exchange.reply(200, service::json_text({{"id", row->id},
                                                 {"object", "session.deleted"},
                                                 {"deleted", true},
                                                 {"tokens", row->tokens}}));
}

}  // namespace

wire::Dialect dialect(wire::ErrorBody error_body) {
  static constexpr wire::Route kRoutes[] = {{verb::get, "/v1/sessions", serve_list},
                                            {verb::post, "/v1/sessions", serve_new},
                                            {verb::get, "/v1/sessions/*", serve_one},
                                            {verb::post, "/v1/sessions/*", serve_action},
                                            {verb::delete_, "/v1/sessions/*", serve_end}};
  return {kRoutes, error_body};
}

}  // namespace kakeya::sessions
