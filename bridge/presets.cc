#include "presets.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/status.h"
#include "formats/printable.h"

namespace kakeya::bridge {
namespace {

using Type = Parameter::Type;

Parameter integer_parameter(std::string name,
                            std::int64_t least,
                            std::int64_t most,
                            std::int64_t standard) {
  return {.name = std::move(name),
          .type = Type::kInteger,
          .least = least,
          .most = most,
          .standard = fmt::to_string(standard)};
}

Parameter choice_parameter(std::string name, std::vector<std::string> choices) {
  Parameter parameter{.name = std::move(name), .type = Type::kChoice, .standard = choices.front()};
  parameter.choices = std::move(choices);
  return parameter;
}

Parameter model_parameter() {
  return {.name = "model", .type = Type::kModel, .standard = "demo"};
}

std::vector<Preset> make_presets() {
  const std::vector<std::string> backends = {"cpu", "mlx", "cuda", "ref"};
  return {
      {.name = "doctor",
       .says = "what the machine can run, and what a model takes there",
       .program = "kakeya",
       .arguments = {"doctor", "--json", "--model", "{model}"},
       .parameters = {model_parameter()},
       .seconds = 300.0,
       .fields = {"version", "system", "cpus", "backends", "model"}},
      {.name = "niah",
       .says = "needles in a haystack, as `kakeya eval niah` has them",
       .program = "kakeya",
       .arguments = {"eval", "niah", "--json", "--model", "{model}", "--backend", "{backend}",
                     "--lengths", "{length}", "--samples", "{samples}", "--hops", "{hops}",
                     "--distractors", "{distractors}", "--seed", "{seed}"},
       .parameters = {model_parameter(), choice_parameter("backend", backends),
                      integer_parameter("length", 128, 32768, 512),
                      integer_parameter("samples", 1, 50, 4), integer_parameter("hops", 0, 8, 0),
                      integer_parameter("distractors", 0, 8, 0),
                      integer_parameter("seed", 0, 1 << 30, 42)},
       .seconds = 7200.0,
       .kinds = {{.schema = "kakeya.eval.niah"}}},
      {.name = "perplexity",
       .says = "how surprised a model is by texts, as `kakeya eval perplexity` has it",
       .program = "kakeya",
       .arguments = {"eval", "perplexity", "--json", "--model", "{model}", "--backend", "{backend}",
                     "--texts", "{texts}", "--length", "{length}", "--limit", "{limit}"},
       .parameters = {model_parameter(), choice_parameter("backend", backends),
                      choice_parameter("texts", {"wikitext2", "prose", "code"}),
                      integer_parameter("length", 16, 8192, 512),
                      integer_parameter("limit", 1, 10000, 4)},
       .seconds = 7200.0,
       .kinds = {{.schema = "kakeya.eval.perplexity"}}},
      {.name = "drafter-parity",
       .says = "whether the drafter proposes what plain loops do, as `kakeya eval drafter-parity` "
               "has it",
       .program = "kakeya",
       .arguments = {"eval", "drafter-parity", "--json", "--model", "{model}", "--backend",
                     "{backend}", "--compute", "{compute}", "--limit", "{limit}", "--blocks",
                     "{blocks}", "--block-tokens", "{block-tokens}"},
       .parameters = {model_parameter(), choice_parameter("backend", backends),
                      choice_parameter("compute", {"f32", "fast"}),
                      integer_parameter("limit", 1, 100, 3), integer_parameter("blocks", 1, 64, 4),
                      integer_parameter("block-tokens", 2, 64, 8)},
       .seconds = 7200.0,
       .kinds = {{.schema = "kakeya.eval.drafter-parity"}}},
      {.name = "code",
       .says =
           "drafts against plain decoding of long code, as `kakeya eval spec --sets code` has it",
       .program = "kakeya",
       .arguments = {"eval", "spec", "--sets", "code", "--json", "--model", "{model}", "--backend",
                     "{backend}", "--limit", "{limit}", "--max-tokens", "{max-tokens}", "--pairs",
                     "{pairs}"},
       .parameters = {model_parameter(), choice_parameter("backend", backends),
                      integer_parameter("limit", 1, 100, 4),
                      integer_parameter("max-tokens", 8, 4096, 256),
                      integer_parameter("pairs", 1, 20, 5)},
       .seconds = 7200.0,
       .kinds = {{.schema = "kakeya.eval.spec"}}},
      {.name = "mac-report",
       .says = "tools/mac_report: equal to references, lossless, and how fast",
       .program = "mac_report",
       .arguments = {"--out", "{out}", "--build", "{build}", "--prompts", "{prompts}", "--model",
                     "{model}"},
       .parameters = {model_parameter(), integer_parameter("prompts", 1, 24, 8)},
       .seconds = 7200.0,
       .reports_into_folder = true,
       .kinds = {{.schema = "kakeya.eval.spec",
                  .command = {"eval", "spec", "--sets", "humaneval-chat,needle", "--pairs", "5",
                              "--limit", "{prompts}"}},
                 {.schema = "kakeya.bench.decode", .command = {"bench", "decode"}},
                 {.schema = "kakeya.bench.verify", .command = {"bench", "verify"}},
                 {.schema = "kakeya.bench.prefill", .command = {"bench", "prefill"}}},
       .fields = {"summary", "reports"}},
  };
}

// True for a name by which jobs may call a model: it is looked up, and never a path.
bool is_model_name(std::string_view text) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
  };
  return !text.empty() && text.size() <= 64 && text.front() != '-' && text.front() != '.' &&
         std::ranges::all_of(text, fits);
}

std::string choices_of(const Parameter& parameter) {
  std::string text;
  for (const std::string& each : parameter.choices) text += (text.empty() ? "" : ", ") + each;
  return text;
}

Result<std::string> check_value(const Parameter& parameter, const Json& given) {
  if (parameter.type == Type::kInteger) {
    const bool fits =
        given.is_number_integer() && given >= parameter.least && given <= parameter.most;
    if (!fits) {
      return invalid_argument("{}: expected a whole number of {} to {}, got {}", parameter.name,
                              parameter.least, parameter.most, printable(json_line(given)));
    }
    return fmt::to_string(given.get<std::int64_t>());
  }
  const std::string text = given.is_string() ? given.get<std::string>() : std::string();
  if (parameter.type == Type::kChoice) {
    if (std::ranges::find(parameter.choices, text) == parameter.choices.end()) {
      return invalid_argument("{}: expected one of {}, got {}", parameter.name,
                              choices_of(parameter), printable(json_line(given)));
    }
    return text;
  }
  if (!is_model_name(text)) {
    return invalid_argument("{}: expected a name of a-z, 0-9, '-', '_' and '.', got {}",
                            parameter.name, printable(json_line(given)));
  }
  return text;
}

Unexpected no_parameter(const Preset& preset, std::string_view name) {
  std::string known;
  for (const Parameter& each : preset.parameters) known += (known.empty() ? "" : ", ") + each.name;
  return invalid_argument("{} has no parameter '{}'; it has {}", preset.name, printable(name),
                          known);
}

const Parameter* find_parameter(const Preset& preset, std::string_view name) {
  const auto found = std::ranges::find(preset.parameters, name, &Parameter::name);
  return found == preset.parameters.end() ? nullptr : &*found;
}

}  // namespace

std::span<const Preset> known_presets() {
  static const std::vector<Preset> kPresets = make_presets();
  return kPresets;
}

const Preset* find_preset(std::span<const Preset> presets, std::string_view name) {
  const auto found = std::ranges::find(presets, name, &Preset::name);
  return found == presets.end() ? nullptr : &*found;
}

Result<Values> check_parameters(const Preset& preset, const Json& given) {
  Values values;
  for (const auto& [name, value] : given.items()) {
    const Parameter* const parameter = find_parameter(preset, name);
    if (parameter == nullptr) return no_parameter(preset, name);
    KAKEYA_ASSIGN_OR_RETURN(values[name], check_value(*parameter, value));
  }
  for (const Parameter& each : preset.parameters) values.try_emplace(each.name, each.standard);
  return values;
}

Result<Json> parse_parameters(const Preset& preset, const std::vector<std::string>& words) {
  Json parameters = Json::object();
  for (const std::string& word : words) {
    const std::size_t equal = word.find('=');
    const std::string name = word.substr(0, equal);
    if (equal == std::string::npos) {
      return invalid_argument("expected NAME=VALUE, got '{}'", printable(word));
    }
    const Parameter* const parameter = find_parameter(preset, name);
    if (parameter == nullptr) return no_parameter(preset, name);
    const std::string text = word.substr(equal + 1);
    std::int64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, number);
    const bool is_number = parsed.ec == std::errc() && parsed.ptr == end;
    Json value = text;
    if (parameter->type == Type::kInteger && is_number) value = number;
    if (parameters.contains(name)) return invalid_argument("{} is given twice", name);
    KAKEYA_TRY(check_value(*parameter, value));
    parameters[name] = std::move(value);
  }
  return parameters;
}

Result<std::vector<std::string>> command_of(const Preset& preset,
                                            const Values& values,
                                            const ServingPrograms& programs,
                                            const std::string& out) {
  const auto program = programs.paths.find(preset.program);
  if (program == programs.paths.end()) {
    return error(StatusCode::kFailedPrecondition, "this machine has no {} for {}", preset.program,
                 preset.name);
  }
  std::map<std::string, std::string> words = {{"{out}", out}, {"{build}", programs.build}};
  for (const auto& [name, value] : values) {
    const Parameter* const parameter = find_parameter(preset, name);
    std::string& word = words["{" + name + "}"];
    word = value;
    if (parameter == nullptr || parameter->type != Type::kModel) continue;
    const auto known = programs.models.find(value);
    if (known == programs.models.end()) {
      return error(StatusCode::kFailedPrecondition, "this machine has no model called {}", value);
    }
    word = known->second;
  }
  std::vector<std::string> command = {program->second};
  for (const std::string& argument : preset.arguments) {
    const auto word = words.find(argument);
    command.push_back(word == words.end() ? argument : word->second);
  }
  return command;
}

}  // namespace kakeya::bridge
