#include "formats/gguf_config.h"

#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"
#include "formats/gguf_config_reader.h"
#include "formats/printable.h"

namespace kakeya {

namespace {

using Json = nlohmann::json;

constexpr IntegerRange kIds = {0, INT32_MAX};
constexpr NumberRange kReals = {-1e30, 1e30};

template <typename Config>
Result<Config> with_path(Result<Config> config, const GgufCheckpoint& checkpoint) {
  if (!config) return Unexpected(config.error().with_context(checkpoint.path()));
  return config;
}

}  // namespace

Result<GgufArchitecture> gguf_architecture(const GgufCheckpoint& checkpoint) {
  KAKEYA_ASSIGN_OR_RETURN(const auto name, checkpoint.first().text("general.architecture"));
  if (const auto architecture = parse_gguf_architecture(name)) return *architecture;
  return error(StatusCode::kUnimplemented,
               "{}: key general.architecture: expected one of {}, got \"{}\"", checkpoint.path(),
               known_gguf_architectures(), printable(name));
}

double json_number(float value) {
  return std::stod(fmt::format("{}", value));
}

Result<std::string> gguf_config_json(const GgufCheckpoint& checkpoint) {
  KAKEYA_ASSIGN_OR_RETURN(const GgufArchitecture architecture, gguf_architecture(checkpoint));
  GgufConfigReader reader(checkpoint, architecture);
  return architecture == GgufArchitecture::kDflash ? reader.read_drafter() : reader.read_model();
}

Result<ModelConfig> read_gguf_model_config(const GgufCheckpoint& checkpoint) {
  KAKEYA_ASSIGN_OR_RETURN(const GgufArchitecture architecture, gguf_architecture(checkpoint));
  if (architecture == GgufArchitecture::kDflash) {
    return invalid_argument("{}: this is a DFlash drafter, expected a model", checkpoint.path());
  }
  KAKEYA_ASSIGN_OR_RETURN(const std::string config, gguf_config_json(checkpoint));
  return with_path(parse_model_config(config), checkpoint);
}

Result<DrafterConfig> read_gguf_drafter_config(const GgufCheckpoint& checkpoint) {
  KAKEYA_ASSIGN_OR_RETURN(const GgufArchitecture architecture, gguf_architecture(checkpoint));
  if (architecture != GgufArchitecture::kDflash) {
    return invalid_argument("{}: expected a DFlash drafter (architecture dflash), got {}",
                            checkpoint.path(), gguf_architecture_name(architecture));
  }
  KAKEYA_ASSIGN_OR_RETURN(const std::string config, gguf_config_json(checkpoint));
  return with_path(parse_drafter_config(config), checkpoint);
}

Result<GenerationConfig> read_gguf_generation_config(const GgufCheckpoint& checkpoint) {
  const GgufFile& file = checkpoint.first();
  struct Field {
    const char* key;
    const char* field;
  };
  constexpr std::array kNumbers = {
      Field{"general.sampling.temp", "temperature"},
      Field{"general.sampling.top_p", "top_p"},
      Field{"general.sampling.min_p", "min_p"},
      Field{"general.sampling.penalty_repeat", "repetition_penalty"},
  };
  Json config = Json::object();
  for (const Field& each : kNumbers) {
    if (file.find_value(each.key) == nullptr) continue;
    KAKEYA_ASSIGN_OR_RETURN(config[each.field], file.number(each.key, kReals));
  }
  if (file.find_value("general.sampling.top_k") != nullptr) {
    KAKEYA_ASSIGN_OR_RETURN(config["top_k"],
                            file.integer("general.sampling.top_k", {-1, INT32_MAX}));
  }
  // A file only has such keys where the publisher recommends sampling.
  const bool recommended = !config.empty();
  config["do_sample"] = recommended;
  constexpr const char* kSuppressed = "tokenizer.ggml.suppress_tokens";
  if (file.find_value(kSuppressed) != nullptr) {
    KAKEYA_ASSIGN_OR_RETURN(config["suppress_tokens"], file.integers(kSuppressed, kIds));
  }
  return with_path(parse_generation_config(config.dump()), checkpoint);
}

}  // namespace kakeya
