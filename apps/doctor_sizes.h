// Sizes of a model of which no more than its shape is known: a name, a folder with config.json
// alone, or the beginning of a GGUF file. Bytes of weights, of a token of context, and how far
// memory reaches. For `kakeya doctor`.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "inspect_report.h"
#include "kakeya/options.h"
#include "kakeya/status.h"

namespace kakeya::cli {

// A way to keep weights, as flags of `kakeya quantize`.
struct WeightsSize {
  std::string flags;
  std::uint64_t bytes = 0;
};

struct KnownShape {
  std::string name;
  ModelSummary model;  // has a config
  // Says in one line that weights are not there, and what to do about it.
  std::string missing;
  std::vector<WeightsSize> weights;
};

// A shape of formats/named_shapes.h. Errors: kInvalidArgument for an unknown name.
Result<KnownShape> shape_by_name(const std::string& name);

// The shape of what is at `path`, if that is a folder with a configuration and without weights, or
// a GGUF file whose end is missing; nothing for anything else, whole or not. Errors: those of
// load_model_config() and read_gguf_model_config().
Result<std::optional<KnownShape>> shape_without_weights(const std::string& path);

// A way to keep keys and values, as --kv-full and --kv-sliding name it.
struct KvSize {
  std::string type;
  // Bytes of a token in all layers of a kind; sliding layers hold no more than some tokens.
  std::uint64_t full_bytes_per_token = 0;
  std::uint64_t sliding_bytes_per_token = 0;
  std::int64_t most_sliding_tokens = 0;
  std::vector<std::uint64_t> session_bytes;  // at ShapeSizes::contexts
  // By KnownShape::weights, the longest context that fits into the limit; 0: none.
  std::vector<std::int64_t> longest_contexts;
};

struct ShapeSizes {
  std::vector<std::int64_t> contexts;
  std::uint64_t limit_bytes = 0;
  std::vector<KvSize> kv;  // those that the model's heads allow
};

// The contexts of which sizes are told: 1024, 4096 ... up to the model's limit, and `asked` if it
// is not 0.
std::vector<std::int64_t> contexts_to_tell(std::int64_t most, std::int64_t asked);

// Computes the sizes of sessions with these options, whose context and types are not looked at.
// Errors: those of EngineImpl::plan_session() and create_backend().
Result<ShapeSizes> measure_shape(const KnownShape& shape,
                                 const EngineOptions& options,
                                 const std::vector<std::int64_t>& contexts,
                                 std::uint64_t limit_bytes);

// Lines for people, and a JSON object.
std::string sizes_text(const KnownShape& shape, const ShapeSizes& sizes);
nlohmann::ordered_json sizes_json(const KnownShape& shape, const ShapeSizes& sizes);

}  // namespace kakeya::cli
