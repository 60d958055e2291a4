#include "inspect_gguf.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "base/status.h"
#include "formats/gguf_checkpoint.h"
#include "formats/printable.h"
#include "tensor_totals.h"

namespace kakeya::cli {
namespace {

constexpr std::size_t kLongestText = 100;  // of a value, in bytes
constexpr std::size_t kLongestArray = 64;
constexpr std::size_t kShownOfLonger = 8;

constexpr IntegerRange kAnyInteger = {std::numeric_limits<std::int64_t>::min(),
                                      std::numeric_limits<std::int64_t>::max()};
constexpr NumberRange kAnyNumber = {-std::numeric_limits<double>::infinity(),
                                    std::numeric_limits<double>::infinity()};

bool is_float(GgufValueType type) {
  return type == GgufValueType::kFloat32 || type == GgufValueType::kFloat64;
}

// Null for what JSON cannot hold: integers beyond 2^63 - 1, NaN, arrays of arrays.
template <typename T>
nlohmann::ordered_json json_or_null(const Result<T>& value) {
  if (!value) return nullptr;
  return *value;
}

template <typename T>
nlohmann::ordered_json array_json(const GgufValue& value, const Result<std::vector<T>>& elements) {
  if (!elements) return nullptr;
  if (elements->size() <= kLongestArray) return *elements;
  const auto shown = elements->begin() + static_cast<std::ptrdiff_t>(kShownOfLonger);
  return {{"type", gguf_value_type_name(value.element_type)},
          {"count", value.count},
          {"first", std::vector<T>(elements->begin(), shown)}};
}

nlohmann::ordered_json value_json(const GgufFile& file, const GgufEntry& entry) {
  const bool array = entry.value.type == GgufValueType::kArray;
  const GgufValueType type = array ? entry.value.element_type : entry.value.type;
  if (type == GgufValueType::kArray) return nullptr;
  if (type == GgufValueType::kString) {
    return array ? array_json(entry.value, file.texts(entry.key))
                 : json_or_null(file.text(entry.key));
  }
  if (type == GgufValueType::kBool) {
    return array ? array_json(entry.value, file.booleans(entry.key))
                 : json_or_null(file.boolean(entry.key));
  }
  if (is_float(type)) {
    return array ? array_json(entry.value, file.numbers(entry.key, kAnyNumber))
                 : json_or_null(file.number(entry.key, kAnyNumber));
  }
  return array ? array_json(entry.value, file.integers(entry.key, kAnyInteger))
               : json_or_null(file.integer(entry.key, kAnyInteger));
}

// Texts may hold any bytes.
std::string dumped(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string shortened(const std::string& text) {
  if (text.size() <= kLongestText) return text;
  return fmt::format("{}... ({} bytes)", text.substr(0, kLongestText), text.size());
}

TensorTotals totals_of(const GgufFile& file) {
  TensorTotals totals;
  for (const GgufTensor& tensor : file.tensors()) {
    totals.add(gguf_encoding_name(tensor.encoding), tensor.data.size());
  }
  return totals;
}

}  // namespace

Result<GgufReport> inspect_gguf(const std::string& path) {
  KAKEYA_ASSIGN_OR_RETURN(GgufFile file, GgufFile::open(path));
  GgufReport report = {.file = std::move(file), .model = {}};
  if (const auto parts = GgufCheckpoint::open(path)) {
    report.model = summarize(*parts);
  } else {
    report.model.problem = parts.error().message();
  }
  return report;
}

std::string to_text(const GgufReport& report) {
  const GgufFile& file = report.file;
  std::string text =
      fmt::format("{:<14}{}\n{:<14}GGUF version {}: {} tensors, {} keys\n", "path", file.path(),
                  "file", file.version(), file.tensors().size(), file.metadata().size());
  text += summary_text(report.model);
  for (const GgufEntry& entry : file.metadata()) {
    text += fmt::format("{:<14}{} = {}\n", "metadata", printable(entry.key),
                        printable(shortened(dumped(value_json(file, entry)))));
  }
  std::uint64_t bytes = 0;
  for (const auto& [name, total] : totals_of(file)) {
    text +=
        fmt::format("{:<14}{}: {} tensors, {} bytes\n", "type", name, total.tensors, total.bytes);
    bytes += total.bytes;
  }
  text += fmt::format("{:<14}{}\n", "bytes", bytes);
  if (!report.model.problem.empty()) {
    text += fmt::format("{:<14}{}\n", "problem", report.model.problem);
  }
  for (const GgufTensor& tensor : file.tensors()) {
    text += fmt::format("{:<7}{:>13}  {} {}\n", gguf_encoding_name(tensor.encoding),
                        tensor.data.size(), printable(tensor.name), shape_string(tensor.shape));
  }
  return text;
}

nlohmann::ordered_json to_json(const GgufReport& report) {
  const GgufFile& file = report.file;
  nlohmann::ordered_json json = {
      {"path", file.path()}, {"gguf_version", file.version()}, {"alignment", file.alignment()}};
  add_summary(report.model, json);
  json["metadata"] = nlohmann::ordered_json::object();
  for (const GgufEntry& entry : file.metadata()) {
    json["metadata"][std::string(entry.key)] = value_json(file, entry);
  }
  json["types"] = totals_of(file).to_json();
  json["tensors"] = nlohmann::ordered_json::array();
  for (const GgufTensor& tensor : file.tensors()) {
    json["tensors"].push_back({{"name", tensor.name},
                               {"type", gguf_encoding_name(tensor.encoding)},
                               {"shape", tensor.shape},
                               {"bytes", tensor.data.size()}});
  }
  return json;
}

}  // namespace kakeya::cli
