#include "wire/openai/routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "service/answer_request.h"
#include "service/model_pool.h"
#include "service/replica_name.h"
#include "wire/http/answering.h"
#include "wire/http/exchange.h"
#include "wire/http/json_reader.h"
#include "wire/http/request_text.h"
#include "wire/openai/completion_read.h"
#include "wire/openai/completion_write.h"
#include "wire/openai/embeddings.h"
#include "wire/openai/infill.h"
#include "wire/openai/input_items.h"
#include "wire/openai/responses_read.h"
#include "wire/openai/responses_store.h"
#include "wire/openai/responses_write.h"
#include "wire/openai/text_routes.h"

namespace kakeya::openai {
namespace {

using boost::beast::http::verb;
using service::AnswerRequest;
using service::Outcome;
using wire::Exchange;
using wire::Route;

std::int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

bool complete(Exchange& exchange, const Outcome<AnswerRequest>& wish, std::string_view id_prefix) {
  if (!wish) return exchange.refuse(wish.error());
  const auto prepared = wire::prepare(exchange, *wish, id_prefix);
  if (!prepared) return exchange.refuse(prepared.error());
  CompletionWriter writer(exchange.service().tokenizer(), *wish, prepared->id,
                          exchange.service().options().model_name, unix_time());
  return wire::answer(exchange, *prepared, writer);
}

bool serve_chat(Exchange& exchange) {
  return complete(exchange, read_chat_request(exchange.body()), "chatcmpl-");
}

bool serve_completion(Exchange& exchange) {
  return complete(exchange, read_completion_request(exchange.body()), "cmpl-");
}

bool serve_infill(Exchange& exchange) {
  const auto wish = read_infill_request(exchange.body());
  if (!wish) return exchange.refuse(wish.error());
  const auto prepared = wire::prepare(exchange, wish->answer, "infill-");
  if (!prepared) return exchange.refuse(prepared.error());
  InfillWriter writer(*wish, exchange.service().options().model_name);
  return wire::answer(exchange, *prepared, writer);
}

ResponseStore store_of(Exchange& exchange) {
  return ResponseStore(exchange.server().kept_texts());
}

// Reads a request for a response, with those of its client's that it names. Errors: as
// read_response_request() and ResponseStore::find().
Outcome<ResponseWish> read_response(Exchange& exchange) {
  const ResponseStore store = store_of(exchange);
  Status readable;
  auto wish = read_response_request(
      exchange.body(), [&](std::string_view id) -> std::shared_ptr<const StoredResponse> {
        auto found = store.find(id, exchange.client().name());
        if (found) return std::move(*found);
        readable = Unexpected(found.error());
        return nullptr;
      });
  if (!readable) return tl::unexpected(service::refusal_of(readable.error()));
  return wish;
}

// Refuses what is to be kept, while no answer has begun, if nothing can be.
Outcome<void> check_store(Exchange& exchange, const ResponseWish& wish) {
  if (!wish.store) return {};
  const auto size = exchange.server().kept_texts().size();
  if (size) return {};
  service::Refusal refusal = service::refusal_of(size.error());
  refusal.message += ": expected a request with store false";
  refusal.parameter = "store";
  return tl::unexpected(std::move(refusal));
}

bool serve_response(Exchange& exchange) {
  ResponseStore store = store_of(exchange);
  const std::string owner = exchange.client().name();
  auto wish = read_response(exchange);
  if (!wish) return exchange.refuse(wish.error());
  if (const auto keeps = check_store(exchange, *wish); !keeps) {
    return exchange.refuse(keeps.error());
  }
  const std::string& replica = exchange.service().options().sessions.replica_name;
  const auto prepared =
      wire::prepare(exchange, wish->answer, service::id_prefix_of("resp_", replica));
  if (!prepared) return exchange.refuse(prepared.error());
  const auto keep = [&](StoredResponse response) -> std::string {
    wish->conversation.insert(wish->conversation.end(), response.messages.begin(),
                              response.messages.end());
    response.messages = std::move(wish->conversation);
    response.first_input = wish->first_input;
    const Status kept = store.put(prepared->id, owner, response);
    if (kept) return {};
    exchange.server().log().add(service::LogLevel::kWarn, "a response was not kept",
                                {{"id", prepared->id}, {"why", kept.error().message()}});
    return kept.error().message();
  };
  ResponsesWriter writer(exchange.service().tokenizer(), prepared->id,
                         exchange.service().options().model_name, unix_time(),
                         std::move(wish->repeated), std::move(wish->tools),
                         wish->store ? ResponsesWriter::Keep(keep) : nullptr);
  return wire::answer(exchange, *prepared, writer);
}

bool serve_input_tokens(Exchange& exchange) {
  const auto wish = read_response(exchange);
  if (!wish) return exchange.refuse(wish.error());
  const auto tokens = wire::count_prompt(exchange, wish->answer);
  if (!tokens) return exchange.refuse(tokens.error());
  return exchange.reply(
      200, fmt::format(R"({{"object":"response.input_tokens","input_tokens":{}}})", *tokens));
}

constexpr std::string_view kInputItems = "/input_items";

std::string response_id(const Exchange& exchange) {
  return wire::decoded(exchange.path().substr(std::string_view("/v1/responses/").size()));
}

bool serve_stored_response(Exchange& exchange) {
  std::string id = response_id(exchange);
  const bool wants_input = id.ends_with(kInputItems);
  if (wants_input) id.resize(id.size() - kInputItems.size());
  const std::string_view query = wire::query_of(wire::view_of(exchange.request().target()));
  // The events of a response are sent while it is made, and not kept.
  const auto wants_events = [](const auto& member) {
    return member.first == "stream" && member.second == "true";
  };
  if (!wants_input && std::ranges::any_of(wire::members_of(query), wants_events)) {
    return exchange.refuse({.message = "stream: expected false of a stored response, got true",
                            .parameter = "stream"});
  }
  const auto stored = store_of(exchange).find(id, exchange.client().name());
  if (!stored) return exchange.refuse(service::refusal_of(stored.error()));
  if (*stored == nullptr) {
    return exchange.refuse(no_such_response(id, "response_id", "response_not_found"));
  }
  if (!wants_input) return exchange.reply(200, (*stored)->json);
  return exchange.reply_with(input_items_json(id, **stored, query));
}

bool serve_response_deletion(Exchange& exchange) {
  const std::string id = response_id(exchange);
  const Status erased = store_of(exchange).erase(id, exchange.client().name());
  if (erased) return exchange.reply(200, deleted_json(id));
  if (erased.error().code() != StatusCode::kNotFound) {
    return exchange.refuse(service::refusal_of(erased.error()));
  }
  return exchange.refuse(no_such_response(id, "response_id", "response_not_found"));
}

bool serve_embeddings(Exchange& exchange) {
  service::Service& service = exchange.service();
  const auto wish = read_embeddings(service.engine().hidden_size(), exchange.body());
  if (!wish) return exchange.refuse(wish.error());
  const std::string& model = service.options().model_name;
  return wire::embed(exchange, wish->request, [&](const wire::Embedded& made) {
    return embeddings_json(*wish, model, made.tokens, made.results);
  });
}

bool serve_models(Exchange& exchange) {
  return exchange.reply(200, models_json(exchange.models().list(), exchange.server().started()));
}

// Names may have slashes, as "google/gemma", or "%2F" for one.
bool serve_model(Exchange& exchange) {
  const auto model = exchange.models().find(
      wire::decoded(exchange.path().substr(std::string_view("/v1/models/").size())));
  if (!model) return exchange.refuse(model.error());
  return exchange.reply(200, model_json(*model, exchange.server().started()));
}

// Loads a model ahead of its first request, or gives it up, as llama-server's routes do.
Outcome<std::string> named_model(Exchange& exchange) {
  const auto body = wire::parse_body(exchange.body());
  if (!body) return tl::unexpected(body.error());
  wire::JsonReader reader;
  std::string name;
  read_model(reader, *body, name);
  if (name.empty()) reader.refuse("model", "the name of a model, as /v1/models lists it", "none");
  if (reader.failed()) return tl::unexpected(reader.problem());
  return name;
}

bool serve_load(Exchange& exchange) {
  const auto name = named_model(exchange);
  if (!name) return exchange.refuse(name.error());
  const auto known = service::check_model(exchange.service().options(), *name);
  if (!known) return exchange.refuse(known.error());
  return exchange.reply(200, R"({"success":true})");  // by now it is there
}

bool serve_unload(Exchange& exchange) {
  const auto name = named_model(exchange);
  if (!name) return exchange.refuse(name.error());
  const auto unloaded = exchange.models().unload(*name);
  return unloaded ? exchange.reply(200, R"({"success":true})") : exchange.refuse(unloaded.error());
}

bool serve_tokenize(Exchange& exchange) {
  const std::lock_guard lock(exchange.service().text_work());
  return exchange.reply_with(tokenize(exchange.service().engine(), exchange.body()));
}

bool serve_detokenize(Exchange& exchange) {
  const std::lock_guard lock(exchange.service().text_work());
  return exchange.reply_with(detokenize(exchange.service().engine(), exchange.body()));
}

bool serve_template(Exchange& exchange) {
  const std::lock_guard lock(exchange.service().text_work());
  return exchange.reply_with(apply_template(exchange.service().engine(), exchange.body()));
}

bool serve_tokenizer(Exchange& exchange) {
  return exchange.reply_with(tokenizer_json(exchange.service().engine()));
}

bool serve_props(Exchange& exchange) {
  const service::Service& service = exchange.service();
  return exchange.reply(200, props_json(service.engine(), service.options()));
}

// Needs no model to be loaded.
constexpr Route about_all(verb asked, std::string_view path, wire::Handler handle) {
  return {.verb = asked, .path = path, .handle = handle, .needs_model = false};
}

}  // namespace

wire::Dialect dialect() {
  static constexpr Route kRoutes[] = {
      {verb::post, "/v1/chat/completions", serve_chat},
      {verb::post, "/v1/completions", serve_completion},
      {verb::post, "/infill", serve_infill},
      {verb::post, "/v1/responses", serve_response},
      {verb::post, "/v1/responses/input_tokens", serve_input_tokens},
      about_all(verb::get, "/v1/responses/*", serve_stored_response),
      about_all(verb::delete_, "/v1/responses/*", serve_response_deletion),
      {verb::post, "/v1/embeddings", serve_embeddings},
      about_all(verb::get, "/v1/models", serve_models),
      {verb::post, "/models/load", serve_load},
      about_all(verb::post, "/models/unload", serve_unload),
      about_all(verb::get, "/v1/models/*", serve_model),
      {verb::post, "/tokenize", serve_tokenize},
      {verb::post, "/detokenize", serve_detokenize},
      {verb::post, "/apply-template", serve_template},
      {verb::get, "/tokenizer_info", serve_tokenizer},
      {verb::get, "/props", serve_props}};
  return {kRoutes, error_json};
}

}  // namespace kakeya::openai
