#include "wire/lm_studio/routes.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "service/answer_request.h"
#include "service/json_text.h"
#include "service/model_pool.h"
#include "wire/http/exchange.h"
#include "wire/http/json_reader.h"

namespace kakeya::lm_studio {
namespace {

using boost::beast::http::verb;
using nlohmann::ordered_json;
using service::json_text;
using service::Outcome;
using wire::Exchange;
using wire::Route;

// All answer chats and completions; any of them also makes embeddings.
constexpr const char* kType = "llm";

ordered_json config_json(const service::ModelFacts& facts) {
  return {{"context_length", facts.context}};
}

// A model as clients list it; what the library does not tell of its file is null. A model has one
// instance, of its own name.
ordered_json model_json(const service::ModelStatus& model) {
  const service::ModelFacts& facts = model.facts;
  ordered_json instances = ordered_json::array();
  if (model.state == service::ModelState::kLoaded) {
    instances.push_back({{"id", model.name}, {"config", config_json(facts)}});
  }
  const std::size_t slash = model.name.find('/');
  return {{"type", kType},
          {"publisher", slash == std::string::npos ? "" : model.name.substr(0, slash)},
          {"key", model.name},
          {"display_name", model.name},
          {"quantization", nullptr},
          {"size_bytes", facts.weight_bytes},
          {"params_string", nullptr},
          {"loaded_instances", std::move(instances)},
          {"max_context_length", facts.context},
          {"format", nullptr},
          {"capabilities", {{"vision", false}, {"trained_for_tool_use", facts.calls_tools}}}};
}

bool serve_models(Exchange& exchange) {
  ordered_json list = ordered_json::array();
  for (const service::ModelStatus& model : exchange.models().list()) {
    list.push_back(model_json(model));
  }
  return exchange.reply(200, json_text({{"models", std::move(list)}}));
}

// The text of a field that must be there.
std::string read_name(wire::JsonReader& reader, const wire::Json& body, const char* field) {
  const wire::Json* value = reader.find(body, field);
  if (value != nullptr && value->is_string() && !value->get_ref<const std::string&>().empty()) {
    return *value;
  }
  reader.refuse(field, "the name of a model, as /api/v1/models lists it",
                value == nullptr ? "nothing" : wire::shown(*value));
  return {};
}

struct LoadRequest {
  std::string model;
  bool echoes_config = false;
};

// Whatever is asked of how a model is loaded is as the server was started, or refused. Fields of
// LM Studio's engine (eval_batch_size, flash_attention, offload_kv_cache_to_gpu) change no answer.
Outcome<LoadRequest> read_load(std::string_view text, std::int64_t context) {
  const auto body = wire::parse_body(text);
  if (!body) return tl::unexpected(body.error());
  wire::JsonReader reader;
  LoadRequest load;
  load.model = read_name(reader, *body, "model");
  reader.read(*body, "echo_load_config", load.echoes_config);
  std::optional<std::int64_t> length;
  reader.read(*body, "context_length", 1, std::numeric_limits<std::int64_t>::max(), length);
  if (length && *length > context) {
    reader.refuse("context_length", fmt::format("at most {}, the context of the server", context),
                  std::to_string(*length));
  }
  if (const wire::Json* experts = reader.find(*body, "num_experts")) {
    reader.refuse("num_experts", "nothing: each model runs as many as it was trained for",
                  wire::shown(*experts));
  }
  if (reader.failed()) return tl::unexpected(reader.problem());
  return load;
}

// By now the model is loaded.
bool serve_load(Exchange& exchange) {
  const service::Service& service = exchange.service();
  const auto load = read_load(exchange.body(), service::context_of(service.engine()));
  if (!load) return exchange.refuse(load.error());
  const auto known = service::check_model(service.options(), load->model);
  if (!known) return exchange.refuse(known.error());
  const auto model = exchange.models().find(load->model);
  if (!model) return exchange.refuse(model.error());
  const std::chrono::duration<double> taken =
      std::chrono::steady_clock::now() - exchange.record()->arrived;
  ordered_json loaded = {{"type", kType},
                         {"instance_id", model->name},
                         {"load_time_seconds", taken.count()},
                         {"status", "loaded"}};
  if (load->echoes_config) loaded["load_config"] = config_json(model->facts);
  return exchange.reply(200, json_text(loaded));
}

bool serve_unload(Exchange& exchange) {
  const auto body = wire::parse_body(exchange.body());
  if (!body) return exchange.refuse(body.error());
  wire::JsonReader reader;
  const std::string name = read_name(reader, *body, "instance_id");
  if (reader.failed()) return exchange.refuse(reader.problem());
  const auto unloaded = exchange.models().unload(name);
  if (!unloaded) return exchange.refuse(unloaded.error());
  return exchange.reply(200, json_text({{"instance_id", name}}));
}

}  // namespace

wire::Dialect dialect(wire::ErrorBody error_body) {
  static constexpr Route kRoutes[] = {
      {.verb = verb::get, .path = "/api/v1/models", .handle = serve_models, .needs_model = false},
      {.verb = verb::post, .path = "/api/v1/models/load", .handle = serve_load},
      {.verb = verb::post,
       .path = "/api/v1/models/unload",
       .handle = serve_unload,
       .needs_model = false}};
  return {kRoutes, error_body, "/api/v1/"};
}

}  // namespace kakeya::lm_studio
