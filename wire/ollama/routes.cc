#include "wire/ollama/routes.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "kakeya/version.h"
#include "service/answer_request.h"
#include "service/json_text.h"
#include "service/service.h"
#include "wire/http/answering.h"
#include "wire/http/exchange.h"
#include "wire/ollama/answers_write.h"
#include "wire/ollama/requests_read.h"

namespace kakeya::ollama {
namespace {

using boost::beast::http::verb;
using nlohmann::ordered_json;
using service::json_text;
using wire::Exchange;

bool answer(Exchange& exchange, const service::AnswerRequest& wish, bool is_chat) {
  const auto prepared = wire::prepare(exchange, wish, "ollama-");
  if (!prepared) return exchange.refuse(prepared.error());
  AnswersWriter writer(exchange.service().options().model_name, is_chat);
  return wire::answer(exchange, *prepared, writer);
}

std::int64_t context_of(const Exchange& exchange) {
  return service::context_of(exchange.service().engine());
}

bool serve_chat(Exchange& exchange) {
  const auto wish = read_chat(exchange.body(), context_of(exchange));
  return wish ? answer(exchange, *wish, true) : exchange.refuse(wish.error());
}

bool serve_generate(Exchange& exchange) {
  const auto wish = read_generate(exchange.body(), context_of(exchange));
  if (!wish) return exchange.refuse(wish.error());
  if (!wish->messages.empty() || !wish->prompts.empty()) return answer(exchange, *wish, false);
  // The model is there all the time.
  const std::string& model = exchange.service().options().model_name;
  const auto known = service::check_model(model, wish->model);
  if (!known) return exchange.refuse(known.error());
  return exchange.reply(200, json_text({{"model", model},
                                        {"created_at", time_text()},
                                        {"response", ""},
                                        {"done", true},
                                        {"done_reason", "load"}}));
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

// The model that is there, with what is known of it.
ordered_json model_json(const service::Service& service) {
  const std::string& name = service.options().model_name;
  return {{"name", name},
          {"model", name},
          {"size", service.engine().footprint().reserved_bytes(MemoryClass::kWeights)},
          {"details", ordered_json::object()}};
}

bool serve_models(Exchange& exchange) {
  return exchange.reply(
      200, json_text({{"models", ordered_json::array({model_json(exchange.service())})}}));
}

bool serve_model(Exchange& exchange) {
  const service::Service& service = exchange.service();
  const auto name = read_model_name(exchange.body());
  if (!name) return exchange.refuse(name.error());
  const auto known = service::check_model(service.options().model_name, *name);
  if (!known) return exchange.refuse(known.error());
  ordered_json capabilities = ordered_json::array({"completion"});
  if (service.tool_format() != service::ToolFormat::kNone) capabilities.push_back("tools");
  if (service.thought_markers()) capabilities.push_back("thinking");
  return exchange.reply(
      200, json_text({{"details", ordered_json::object()},
                      {"model_info",
                       {{"general.name", service.options().model_name},
                        {"general.context_length", service::context_of(service.engine())}}},
                      {"capabilities", std::move(capabilities)}}));
}

bool serve_version(Exchange& exchange) {
  return exchange.reply(200, json_text({{"version", kVersion}}));
}

}  // namespace

namespace {

// Ollama's own documents show bodies as `curl -d` sends them.
constexpr wire::Route post(std::string_view path, wire::Handler handle) {
  return {.verb = verb::post, .path = path, .handle = handle, .takes_any_type = true};
}

}  // namespace

wire::Dialect dialect() {
  static constexpr wire::Route kRoutes[] = {
      post("/api/chat", serve_chat),          post("/api/generate", serve_generate),
      {verb::get, "/api/tags", serve_models}, {verb::get, "/api/ps", serve_models},
      post("/api/show", serve_model),         {verb::get, "/api/version", serve_version},
      post("/api/embed", serve_embed),        post("/api/embeddings", serve_embeddings)};
  return {kRoutes, error_json};
}

}  // namespace kakeya::ollama
