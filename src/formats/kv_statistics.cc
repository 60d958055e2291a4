#include "formats/kv_statistics.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/checksum.h"
#include "base/status.h"
#include "formats/gguf_checkpoint.h"
#include "formats/printable.h"
#include "formats/safetensors.h"
#include "formats/safetensors_writer.h"
#include "kakeya/status_macros.h"

namespace kakeya {
namespace {

constexpr std::string_view kStatisticsFormat = "kakeya.kv-codes/1";
constexpr std::string_view kStatisticsName = "kv-codes.safetensors";

// A tensor of a layer.
struct Statistic {
  std::string_view name;
  std::vector<float> KvLayerStatistics::*numbers;
  bool may_be_negative = false;
};

constexpr Statistic kStatistics[] = {
    {"key_mean", &KvLayerStatistics::key_mean, true},
    {"key_variance", &KvLayerStatistics::key_variance},
    {"key_cost", &KvLayerStatistics::key_cost},
    {"value_mean", &KvLayerStatistics::value_mean, true},
};

// Layers of which values are keys have no value_mean.
std::span<const Statistic> statistics_in(const ModelConfig& config, std::int64_t layer) {
  return std::span(kStatistics)
      .first(config.values_are_keys(layer) ? std::size(kStatistics) - 1 : std::size(kStatistics));
}

std::string statistic_name(std::int64_t layer, const Statistic& part) {
  return fmt::format("layers.{}.{}", layer, part.name);
}

template <typename F>
void for_kv_layers(const ModelConfig& config, F&& f) {
  for (std::int64_t l = 0; l < config.num_hidden_layers; ++l) {
    if (config.owns_kv(l)) f(l);
  }
}

std::string shape_text(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Result<std::vector<float>> read_statistic(const SafetensorsFile& file,
                                          const std::string& name,
                                          const Shape& shape,
                                          bool may_be_negative) {
  const TensorView* tensor = file.find(name);
  if (tensor == nullptr) {
    return invalid_argument("{}: tensor {} is missing: made for another model?", file.path(), name);
  }
  if (tensor->dtype != DType::kF32 || tensor->shape != shape) {
    return invalid_argument("{}: tensor {}: expected F32 of shape {}, got {} of {}", file.path(),
                            name, shape_text(shape), dtype_name(tensor->dtype),
                            shape_text(tensor->shape));
  }
  std::vector<float> numbers(static_cast<std::size_t>(shape[0] * shape[1]));
  std::memcpy(numbers.data(), tensor->data, numbers.size() * sizeof(float));
  for (const float number : numbers) {
    if (std::isfinite(number) && (may_be_negative || number >= 0.0F)) continue;
    return invalid_argument("{}: tensor {}: expected finite numbers{}, got {}", file.path(), name,
                            may_be_negative ? "" : " of 0 or more", number);
  }
  return numbers;
}

std::string statistics_metadata(const SafetensorsFile& file, const char* key) {
  const auto found = file.metadata().find(key);
  return found == file.metadata().end() ? "" : found->second;
}

Result<KvLayerStatistics> read_statistics(const SafetensorsFile& file,
                                          const ModelConfig& config,
                                          std::int64_t layer) {
  KvLayerStatistics statistics{.num_kv_heads = config.layer_kv_heads(layer),
                               .head_dim = config.layer_head_dim(layer),
                               .is_sliding = config.is_sliding(layer)};
  for (const Statistic& part : statistics_in(config, layer)) {
    KAKEYA_ASSIGN_OR_RETURN(
        statistics.*part.numbers,
        read_statistic(file, statistic_name(layer, part),
                       {statistics.num_kv_heads, statistics.head_dim}, part.may_be_negative));
  }
  return statistics;
}

}  // namespace

std::string kv_statistics_path(const std::string& model) {
  if (is_gguf_path(model)) return fmt::format("{}.{}", model, kStatisticsName);
  return std::filesystem::path(model) / kStatisticsName;
}

Result<KvStatistics> load_kv_statistics(const std::string& path, const ModelConfig& config) {
  KAKEYA_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::open(path));
  const std::string format = statistics_metadata(file, "format");
  if (format != kStatisticsFormat) {
    return invalid_argument(
        "{}: expected a file of format {}, as `kakeya calibrate` writes it, got {}", path,
        kStatisticsFormat, format.empty() ? "another one" : printable(format));
  }
  KvStatistics statistics{.weights = statistics_metadata(file, "weights"),
                          .made_from = statistics_metadata(file, "made_from")};
  const std::string tokens = statistics_metadata(file, "tokens");
  std::from_chars(tokens.data(), tokens.data() + tokens.size(), statistics.tokens);
  std::size_t wanted = 0;
  Status read;
  for_kv_layers(config, [&](std::int64_t l) {
    wanted += statistics_in(config, l).size();
    if (!read) return;
    auto layer = read_statistics(file, config, l);
    if (!layer) {
      read = Unexpected(layer.error());
      return;
    }
    statistics.layers.push_back(*std::move(layer));
  });
  KAKEYA_TRY(std::move(read));
  if (file.tensors().size() != wanted) {
    return invalid_argument("{}: expected {} tensors, got {}: made for another model?", path,
                            wanted, file.tensors().size());
  }
  for (const KvLayerStatistics& layer : statistics.layers) {
    for (const Statistic& part : kStatistics) {
      statistics.fingerprint =
          checksum(std::as_bytes(std::span(layer.*part.numbers)), statistics.fingerprint);
    }
  }
  return statistics;
}

Status save_kv_statistics(const std::string& path,
                          const ModelConfig& config,
                          const KvStatistics& statistics) {
  std::vector<SafetensorsLayout> layouts;
  std::vector<std::span<const std::byte>> bytes;
  std::size_t index = 0;
  for_kv_layers(config, [&](std::int64_t l) {
    const KvLayerStatistics& layer = statistics.layers[index++];
    for (const Statistic& part : statistics_in(config, l)) {
      layouts.push_back(
          {statistic_name(l, part), DType::kF32, {layer.num_kv_heads, layer.head_dim}});
      bytes.push_back(std::as_bytes(std::span(layer.*part.numbers)));
    }
  });
  const SafetensorsMetadata metadata = {{"format", std::string(kStatisticsFormat)},
                                        {"weights", statistics.weights},
                                        {"made_from", statistics.made_from},
                                        {"tokens", std::to_string(statistics.tokens)}};
  KAKEYA_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                          SafetensorsWriter::create(path, layouts, metadata));
  for (std::size_t i = 0; i < bytes.size(); ++i) KAKEYA_TRY(writer.write(i, bytes[i]));
  return writer.commit();
}

}  // namespace kakeya
