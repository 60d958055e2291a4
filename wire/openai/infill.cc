#include "wire/openai/infill.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>

#include "service/json_text.h"
#include "wire/openai/completion_read.h"
#include "wire/openai/completion_write.h"

namespace kakeya::openai {
namespace {

using nlohmann::ordered_json;
using service::AnswerRequest;

constexpr std::size_t kMostFiles = 1024;

// Takes a field out of the body, whose other fields are those of completions; none if it is missing
// or null.
std::optional<wire::Json> take(wire::Json& body, const char* name) {
  const auto found = body.find(name);
  if (found == body.end()) return {};
  wire::Json value = std::move(*found);
  body.erase(found);
  if (value.is_null()) return {};
  return value;
}

std::string take_text(wire::JsonReader& reader,
                      wire::Json& body,
                      const char* name,
                      bool is_needed) {
  const auto value = take(body, name);
  if (value && value->is_string()) return *value;
  if (value || is_needed) reader.refuse(name, "a text", value ? wire::shown(*value) : "nothing");
  return {};
}

std::vector<service::OtherFile> take_files(wire::JsonReader& reader, wire::Json& body) {
  constexpr const char* kName = "input_extra";
  const auto files = take(body, kName);
  if (!files) return {};
  if (!files->is_array() || files->size() > kMostFiles) {
    reader.refuse(kName, fmt::format("an array of at most {} files", kMostFiles),
                  files->is_array() ? std::to_string(files->size()) : wire::shown(*files));
    return {};
  }
  std::vector<service::OtherFile> read;
  for (const wire::Json& file : *files) {
    const auto text_of = [&](const char* field, const char* otherwise) -> std::string {
      const auto text = file.is_object() ? file.find(field) : file.end();
      if (text != file.end() && text->is_string()) return *text;
      if (text != file.end() || otherwise == nullptr) {
        reader.refuse(kName, R"(files as {"filename": TEXT, "text": TEXT})", wire::shown(file));
      }
      return otherwise == nullptr ? "" : otherwise;
    };
    read.push_back({.name = text_of("filename", "file"), .text = text_of("text", nullptr)});
  }
  return read;
}

// Turns off what names of samplers leave out. llama.cpp's own `infill`, which joins the likelihoods
// of tokens that begin alike, is passed over.
void read_samplers(wire::JsonReader& reader,
                   const wire::Json& samplers,
                   service::SamplingWish& out) {
  static constexpr std::string_view kNames[] = {"penalties", "temperature", "top_k", "top_p",
                                                "min_p"};
  const auto refuse = [&](const wire::Json& got) {
    reader.refuse("samplers",
                  fmt::format("some of {}, in this order, and infill", fmt::join(kNames, ", ")),
                  wire::shown(got));
  };
  if (!samplers.is_array()) return refuse(samplers);
  bool is_on[std::size(kNames)] = {};
  std::size_t next = 0;
  for (const wire::Json& name : samplers) {
    if (name == "infill") continue;
    const auto* const found = name.is_string()
                                  ? std::ranges::find(kNames, name.get_ref<const std::string&>())
                                  : std::end(kNames);
    const auto at = static_cast<std::size_t>(found - std::begin(kNames));
    if (found == std::end(kNames) || at < next) return refuse(name);
    is_on[at] = true;
    next = at + 1;
  }
  if (!is_on[0]) out.repetition_penalty = 1.0F;
  if (!is_on[0]) out.presence_penalty = out.frequency_penalty = 0.0F;
  if (!is_on[1]) out.temperature = 1.0F;
  if (!is_on[2]) out.top_k = 0;
  if (!is_on[3]) out.top_p = 1.0F;
  if (!is_on[4]) out.min_p = 0.0F;
}

void take_line_limits(wire::JsonReader& reader, wire::Json& body, AnswerRequest& out) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  std::optional<std::int64_t> indent;
  std::optional<std::int64_t> milliseconds;
  reader.read(body, "n_indent", 0, kMost, indent);
  // Below 0: no limit, in llama.cpp's words.
  reader.read(body, "t_max_predict_ms", -1, kMost, milliseconds);
  take(body, "n_indent");
  take(body, "t_max_predict_ms");
  take(body, "t_max_prompt_ms");  // llama-server knows it, and does nothing about it
  if (indent.value_or(0) == 0 && milliseconds.value_or(0) <= 0) return;
  out.line_limits = service::LineLimits{
      .least_indent = indent.value_or(0),
      .most_seconds =
          static_cast<double>(std::max<std::int64_t>(milliseconds.value_or(0), 0)) / 1e3};
}

std::vector<std::string> take_response_fields(wire::JsonReader& reader, wire::Json& body) {
  const auto fields = take(body, "response_fields");
  if (!fields) return {};
  const auto is_text = [](const wire::Json& name) { return name.is_string(); };
  if (!fields->is_array() || !std::ranges::all_of(*fields, is_text)) {
    reader.refuse("response_fields", "an array of names", wire::shown(*fields));
    return {};
  }
  return *fields;
}

// Takes what completions have and the answer here has no place for.
void refuse_unanswered(wire::JsonReader& reader, wire::Json& body) {
  for (const char* name : {"echo", "logprobs", "return_token_ids", "return_runs"}) {
    const auto value = take(body, name);
    if (!value || *value == false) continue;
    reader.refuse(name, "nothing: /v1/completions has it", wire::shown(*value));
  }
  const auto choices = take(body, "n");
  if (choices && *choices != 1) reader.refuse("n", "1", wire::shown(*choices));
  const auto suffix = take(body, "suffix");
  if (suffix) reader.refuse("suffix", "input_suffix", wire::shown(*suffix));
}

}  // namespace

service::Outcome<InfillRequest> read_infill_request(std::string_view body) {
  auto parsed = wire::parse_body(body);
  if (!parsed) return tl::unexpected(std::move(parsed).error());
  wire::JsonReader reader;
  InfillRequest infill;
  AnswerRequest& request = infill.answer;
  service::RawPrompt prompt;
  prompt.text = take_text(reader, *parsed, "input_prefix", true);
  prompt.suffix = take_text(reader, *parsed, "input_suffix", true);
  prompt.begun = take_text(reader, *parsed, "prompt", false);
  prompt.files = take_files(reader, *parsed);
  take_line_limits(reader, *parsed, request);
  infill.response_fields = take_response_fields(reader, *parsed);
  const auto samplers = take(*parsed, "samplers");
  refuse_unanswered(reader, *parsed);
  request.prompts.push_back(std::move(prompt));
  read_completion(reader, *parsed, body, 0, request);
  if (samplers) read_samplers(reader, *samplers, request.sampling);
  if (reader.failed()) return tl::unexpected(reader.problem());
  return infill;
}

std::string InfillWriter::begin(int /*index*/) {
  return "";
}

std::string InfillWriter::piece(int index, const service::AnswerPiece& piece) {
  if (piece.text.empty()) return "";
  return wire::server_event(
      service::json_text({{"index", index}, {"content", piece.text}, {"stop", false}}));
}

std::string InfillWriter::end(int /*index*/, const service::AnswerEnd& end) {
  end_ = end;
  return "";
}

std::string InfillWriter::done(const service::Usage& usage) {
  return wire::server_event(last("", usage));
}

std::string InfillWriter::error(const service::Refusal& refusal) {
  return wire::server_event(error_json(refusal));
}

std::string InfillWriter::whole(const std::vector<service::WholeAnswer>& answers,
                                const service::Usage& usage) {
  end_ = answers.front().end;
  return last(answers.front().piece.text, usage);
}

std::string InfillWriter::last(std::string_view content, const service::Usage& usage) const {
  const bool is_word = end_.stop_string.has_value();
  const bool is_limit = end_.reason == service::FinishReason::kLength;
  ordered_json json = {
      {"index", 0},
      {"content", content},
      {"stop", true},
      {"model", model_},
      {"tokens_predicted", usage.completion_tokens},
      {"tokens_evaluated", usage.prompt_tokens},
      {"tokens_cached", usage.cached_tokens},
      {"truncated", false},
      {"stop_type", is_word    ? "word"
                    : is_limit ? "limit"
                               : "eos"},
      {"stopping_word", is_word ? request_.answer.stop_strings[*end_.stop_string] : ""}};
  wire::add_not_kept(json, "session", end_.session_not_kept);
  if (request_.response_fields.empty()) return service::json_text(json);
  ordered_json chosen = ordered_json::object();
  for (const std::string& name : request_.response_fields) {
    if (const auto found = json.find(name); found != json.end()) chosen[name] = *found;
  }
  return service::json_text(chosen);
}

}  // namespace kakeya::openai
