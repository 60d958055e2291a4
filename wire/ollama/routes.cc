#include "wire/ollama/routes.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "kakeya/version.h"
#include "service/answer_request.h"
#include "service/json_text.h"
#include "service/model_pool.h"
#include "wire/http/answering.h"
#include "wire/http/exchange.h"
#include "wire/http/json_reader.h"
#include "wire/ollama/answers_write.h"
#include "wire/ollama/requests_read.h"

namespace kakeya::ollama {
namespace {

using boost::beast::http::verb;
using nlohmann::ordered_json;
using service::json_text;
using wire::Exchange;

// The architecture that clients are told: the library does not say the file's.
constexpr const char* kFamily = "kakeya";

bool answer(Exchange& exchange, const service::AnswerRequest& wish, bool is_chat) {
  const auto prepared = wire::prepare(exchange, wish, "ollama-");
  if (!prepared) return exchange.refuse(prepared.error());
  AnswersWriter writer(exchange.service().options().model_name, is_chat, exchange.record().get());
  return wire::answer(exchange, *prepared, writer);
}

std::int64_t context_of(const Exchange& exchange) {
  return service::context_of(exchange.service().engine());
}

// True if the model is to be given up behind this request: keep_alive of no time.
bool asks_to_give_up(std::string_view text) {
  const auto body = wire::parse_body(text);
  if (!body || !body->is_object()) return false;
  const auto value = body->find("keep_alive");
  if (value == body->end()) return false;
  return *value == 0 || *value == "0" || *value == "0s" || *value == "0m" || *value == "0h";
}

// Without a question: by now the model is loaded.
bool answer_load(Exchange& exchange,
                 const service::AnswerRequest& wish,
                 bool is_chat,
                 bool gives_up) {
  const auto known = service::check_model(exchange.service().options(), wish.model);
  if (!known) return exchange.refuse(known.error());
  const std::string& model = exchange.service().options().model_name;
  ordered_json loaded = {{"model", model}, {"created_at", time_text()}};
  if (is_chat) {
    loaded["message"] = {{"role", "assistant"}, {"content", ""}};
  } else {
    loaded["response"] = "";
  }
  loaded["done"] = true;
  loaded["done_reason"] = gives_up ? "unload" : "load";
  return exchange.reply(200, json_text(loaded));
}

bool answer_or_load(Exchange& exchange,
                    const service::Outcome<service::AnswerRequest>& wish,
                    bool is_chat) {
  if (!wish) return exchange.refuse(wish.error());
  const bool gives_up = exchange.models().has_choice() && asks_to_give_up(exchange.body());
  const bool is_load = wish->messages.empty() && wish->prompts.empty();
  const bool goes_on =
      is_load ? answer_load(exchange, *wish, is_chat, gives_up) : answer(exchange, *wish, is_chat);
  // One that stays does so.
  if (gives_up) static_cast<void>(exchange.models().unload(wish->model));
  return goes_on;
}

bool serve_chat(Exchange& exchange) {
  return answer_or_load(exchange, read_chat(exchange.body(), context_of(exchange)), true);
}

bool serve_generate(Exchange& exchange) {
  return answer_or_load(exchange, read_generate(exchange.body(), context_of(exchange)), false);
}

bool serve_embed(Exchange& exchange) {
  const auto wish =
      read_embed(exchange.body(), context_of(exchange), exchange.service().engine().hidden_size());
  if (!wish) return exchange.refuse(wish.error());
  const Stopwatch watch;
  return wire::embed(exchange, *wish, [&](const wire::Embedded& made) {
    ordered_json vectors = ordered_json::array();
    for (const service::TextResult& result : made.results) vectors.push_back(result.embedding);
    return json_text({{"model", exchange.service().options().model_name},
                      {"embeddings", std::move(vectors)},
                      {"total_duration", static_cast<std::int64_t>(watch.seconds() * 1e9)},
                      {"load_duration", 0},
                      {"prompt_eval_count", made.tokens}});
  });
}

bool serve_embeddings(Exchange& exchange) {
  const auto wish = read_embeddings(exchange.body(), context_of(exchange));
  if (!wish) return exchange.refuse(wish.error());
  return wire::embed(exchange, *wish, [](const wire::Embedded& made) {
    return json_text({{"embedding", made.results.front().embedding}});
  });
}

// A model as clients list it; what the library does not tell of its file is empty.
ordered_json details_json() {
  return {{"parent_model", ""},   {"format", kFamily},
          {"family", kFamily},    {"families", ordered_json::array({kFamily})},
          {"parameter_size", ""}, {"quantization_level", ""}};
}

// A model with what is known of it.
ordered_json model_json(const Exchange& exchange, const service::ModelStatus& model) {
  return {{"name", model.name},
          {"model", model.name},
          {"modified_at", time_text(exchange.server().started())},
          {"size", model.facts.weight_bytes},
          {"digest", model.facts.fingerprint},
          {"details", details_json()}};
}

bool serve_models(Exchange& exchange) {
  ordered_json list = ordered_json::array();
  for (const service::ModelStatus& model : exchange.models().list()) {
    list.push_back(model_json(exchange, model));
  }
  return exchange.reply(200, json_text({{"models", std::move(list)}}));
}

// Those that are loaded, as models that stay: they expire in a hundred years.
bool serve_running(Exchange& exchange) {
  constexpr std::int64_t kForever = std::int64_t{100} * 365 * 24 * 3600;
  ordered_json list = ordered_json::array();
  for (const service::ModelStatus& model : exchange.models().list()) {
    if (model.state != service::ModelState::kLoaded) continue;
    ordered_json json = model_json(exchange, model);
    json["expires_at"] = time_text(exchange.server().started() + kForever);
    json["size_vram"] = model.facts.is_on_device ? json["size"] : ordered_json(0);
    json["context_length"] = model.facts.context;
    list.push_back(std::move(json));
  }
  return exchange.reply(200, json_text({{"models", std::move(list)}}));
}

bool serve_model(Exchange& exchange) {
  const auto name = read_model_name(exchange.body());
  if (!name) return exchange.refuse(name.error());
  const auto model = exchange.models().find(*name);
  if (!model) return exchange.refuse(model.error());
  const service::ModelFacts& facts = model->facts;
  const std::string family = kFamily;
  return exchange.reply(200, json_text({{"modelfile", ""},
                                        {"parameters", ""},
                                        {"template", ""},
                                        {"details", details_json()},
                                        {"model_info",
                                         {{"general.architecture", family},
                                          {"general.name", model->name},
                                          {"general.context_length", facts.context},
                                          {family + ".context_length", facts.context},
                                          {family + ".embedding_length", facts.hidden_size}}},
                                        {"capabilities", service::capabilities_of(facts)},
                                        {"modified_at", time_text(exchange.server().started())}}));
}

bool serve_version(Exchange& exchange) {
  return exchange.reply(200, json_text({{"version", kVersion}}));
}

}  // namespace

namespace {

// Ollama's own documents show bodies as `curl -d` sends them.
constexpr wire::Route post(std::string_view path, wire::Handler handle, bool needs_model = true) {
  return {.verb = verb::post,
          .path = path,
          .handle = handle,
          .takes_any_type = true,
          .needs_model = needs_model};
}

constexpr wire::Route get(std::string_view path, wire::Handler handle) {
  return {.verb = verb::get, .path = path, .handle = handle, .needs_model = false};
}

}  // namespace

wire::Dialect dialect() {
  static constexpr wire::Route kRoutes[] = {
      post("/api/chat", serve_chat),         post("/api/generate", serve_generate),
      get("/api/tags", serve_models),        get("/api/ps", serve_running),
      post("/api/show", serve_model, false), get("/api/version", serve_version),
      post("/api/embed", serve_embed),       post("/api/embeddings", serve_embeddings)};
  return {kRoutes, error_json, "/api/"};
}

}  // namespace kakeya::ollama
