#include "wire/ollama/routes.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
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

// Without a question: the model is there all the time.
bool answer_load(Exchange& exchange, const service::AnswerRequest& wish, bool is_chat) {
  const std::string& model = exchange.service().options().model_name;
  const auto known = service::check_model(model, wish.model);
  if (!known) return exchange.refuse(known.error());
  ordered_json loaded = {{"model", model}, {"created_at", time_text()}};
  if (is_chat) {
    loaded["message"] = {{"role", "assistant"}, {"content", ""}};
  } else {
    loaded["response"] = "";
  }
  loaded["done"] = true;
  loaded["done_reason"] = "load";
  return exchange.reply(200, json_text(loaded));
}

bool answer_or_load(Exchange& exchange,
                    const service::Outcome<service::AnswerRequest>& wish,
                    bool is_chat) {
  if (!wish) return exchange.refuse(wish.error());
  if (wish->messages.empty() && wish->prompts.empty()) return answer_load(exchange, *wish, is_chat);
  return answer(exchange, *wish, is_chat);
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

// The model that is there, with what is known of it.
ordered_json model_json(const service::Service& service) {
  const std::string& name = service.options().model_name;
  return {{"name", name},
          {"model", name},
          {"modified_at", time_text(service.started())},
          {"size", service.engine().footprint().reserved_bytes(MemoryClass::kWeights)},
          {"digest", service.engine().model_fingerprint()},
          {"details", details_json()}};
}

bool serve_models(Exchange& exchange) {
  return exchange.reply(
      200, json_text({{"models", ordered_json::array({model_json(exchange.service())})}}));
}

// As a model that stays: it expires in a hundred years.
bool serve_running(Exchange& exchange) {
  constexpr std::int64_t kForever = std::int64_t{100} * 365 * 24 * 3600;
  const service::Service& service = exchange.service();
  ordered_json model = model_json(service);
  model["expires_at"] = time_text(service.started() + kForever);
  model["size_vram"] = service.engine().backend_name() == "cpu" ? ordered_json(0) : model["size"];
  model["context_length"] = service::context_of(service.engine());
  return exchange.reply(200, json_text({{"models", ordered_json::array({std::move(model)})}}));
}

bool serve_model(Exchange& exchange) {
  service::Service& service = exchange.service();
  const auto name = read_model_name(exchange.body());
  if (!name) return exchange.refuse(name.error());
  const auto known = service::check_model(service.options().model_name, *name);
  if (!known) return exchange.refuse(known.error());
  ordered_json capabilities = ordered_json::array({"completion"});
  if (service.planner().tool_format() != service::ToolFormat::kNone)
    capabilities.push_back("tools");
  if (service.planner().thought_markers()) capabilities.push_back("thinking");
  const std::string family = kFamily;
  const std::int64_t context = service::context_of(service.engine());
  return exchange.reply(
      200, json_text({{"modelfile", ""},
                      {"parameters", ""},
                      {"template", ""},
                      {"details", details_json()},
                      {"model_info",
                       {{"general.architecture", family},
                        {"general.name", service.options().model_name},
                        {"general.context_length", context},
                        {family + ".context_length", context},
                        {family + ".embedding_length", service.engine().hidden_size()}}},
                      {"capabilities", std::move(capabilities)},
                      {"modified_at", time_text(service.started())}}));
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
      {verb::get, "/api/tags", serve_models}, {verb::get, "/api/ps", serve_running},
      post("/api/show", serve_model),         {verb::get, "/api/version", serve_version},
      post("/api/embed", serve_embed),        post("/api/embeddings", serve_embeddings)};
  return {kRoutes, error_json, "/api/"};
}

}  // namespace kakeya::ollama
