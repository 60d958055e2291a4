// Writes the config.json of what a GGUF file holds, for formats/gguf_config.cc, which parses it:
// one member for each part of a configuration, and those of Gemma 4 and of drafters by themselves.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "formats/families.h"
#include "formats/gguf_checkpoint.h"
#include "formats/gguf_names.h"
#include "kakeya/status.h"

namespace kakeya {

class GgufConfigReader {
 public:
  GgufConfigReader(const GgufCheckpoint& checkpoint, GgufArchitecture architecture)
      : checkpoint_(checkpoint), file_(checkpoint.first()), architecture_(architecture) {}

  // The config.json of a model, and of a drafter. Errors: as gguf_config_json().
  Result<std::string> read_model();
  Result<std::string> read_drafter();

 private:
  using Json = nlohmann::json;

  static constexpr IntegerRange kLayers = {1, 1024};
  static constexpr IntegerRange kSizes = {0, std::int64_t{1} << 40};
  static constexpr IntegerRange kIds = {0, INT32_MAX};
  static constexpr NumberRange kReals = {-1e30, 1e30};

  std::string key(std::string_view name) const {
    return fmt::format("{}.{}", gguf_architecture_name(architecture_), name);
  }
  bool has(std::string_view name) const { return file_.find_value(key(name)) != nullptr; }
  bool is_gemma4() const { return architecture_ == GgufArchitecture::kGemma4; }

  template <typename... Args>
  Unexpected fail(StatusCode code, fmt::format_string<Args...> format, Args&&... args) const {
    return error(code, "{}: {}", file_.path(), fmt::format(format, std::forward<Args>(args)...));
  }

  // Copies a size, or a number, to a field of config.json.
  Status copy(std::string_view name, const char* field);
  Status copy_if_there(std::string_view name, const char* field);
  Status copy_number_if_there(std::string_view name, Json& field);
  // The number, as json_number() gives it where the file has it in f32.
  Result<double> number(std::string_view name) const;

  // Checks a field that config.json does not have: where a file says it, it must be what the
  // network computes anyway.
  Status require_if_there(std::string_view name, std::int64_t expected);
  Status reject(std::initializer_list<std::string_view> names);
  // Checks the factor of scores, which has no field, where a file says it.
  Status require_attention_scale(double expected);
  // Positions are not scaled: a factor of 1 says so.
  Status require_no_scaling();
  Status reject_not_causal();

  // The parts that all families have.
  Status read_sizes();
  Status read_embedding();
  Status read_tokens();
  Status add_turn_ends(Json& stops);
  Result<bool> begins_with_bos() const;
  // Rows of a look-up table.
  Result<std::int64_t> rows_of(std::string_view name) const;
  // One value for each layer, or one for all.
  Result<std::vector<std::int64_t>> by_layer(std::string_view name) const;
  Result<std::vector<bool>> sliding_layers() const;
  void set_layer_types(const std::vector<bool>& sliding);
  // Divisors of the frequencies of a head's pairs.
  Result<std::vector<float>> rope_divisors(std::int64_t pairs) const;

  // The layers of all families but Gemma 4, and of drafters, which have no row of `family`.
  Status read_layers(const Family* family);
  Status read_head_dim(const Family* family);
  Status read_rope(const Family* family);
  Status read_rope_scaling(Json& scaling);
  Status read_biases(const Family& family);
  Status read_windows(const Family& family);
  Status read_experts(const Family& family);

  Status read_gemma4();
  Status read_gemma4_layers();
  Status read_gemma4_heads();
  // E-models: layers that read another layer's keys and values may be twice as wide.
  Status read_gemma4_widths();
  Status read_gemma4_rope();
  Result<double> rotating_part() const;
  Status read_gemma4_parts();

  Status read_drafter_windows();
  Status read_drafter_parts();

  const GgufCheckpoint& checkpoint_;
  const GgufFile& file_;
  GgufArchitecture architecture_;
  std::int64_t layers_ = 0;
  Json config_;
};

}  // namespace kakeya
