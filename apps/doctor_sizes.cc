#include "doctor_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <utility>

#include "base/memory_budget.h"
#include "base/status.h"
#include "convert/gguf_types.h"
#include "convert/mlx_checkpoint.h"
#include "convert/source_model.h"
#include "convert/tensor_encoder.h"
#include "decode/workspace.h"
#include "formats/gguf_checkpoint.h"
#include "formats/gguf_config.h"
#include "formats/gguf_layout.h"
#include "formats/model_tensors.h"
#include "formats/named_shapes.h"
#include "runtime/engine_impl.h"

namespace kakeya::cli {

namespace {

constexpr std::pair<const char*, KvType> kShownTypes[] = {{"auto", KvType::kAuto},
                                                          {"int8", KvType::kInt8},
                                                          {"e8", KvType::kE8},
                                                          {"k4v4", calibrated_kv(4, 4)},
                                                          {"k3v3", calibrated_kv(3, 3)}};

// The model as its folder in bf16 would hold it; its tensors have no data.
SourceModel unwritten_model(const ModelConfig& config) {
  SourceModel model;
  model.config = config;
  model.config_json = "{}";
  for (TensorSpec& spec : expected_tensors(config)) {
    if (spec.presence != TensorPresence::kRequired) continue;
    const TensorView view = {
        .data = nullptr, .shape = std::move(spec.shape), .dtype = DType::kBF16, .name = spec.name};
    model.tensors.push_back({.name = std::move(spec.name), .rows = TensorRows(view)});
  }
  return model;
}

// The bytes of what `kakeya quantize` writes.
std::vector<WeightsSize> weights_of(const ModelConfig& config) {
  const SourceModel model = unwritten_model(config);
  std::vector<WeightsSize> sizes = {{"bf16", model.stored_bytes()}};
  for (const int bits : {8, 4}) {
    std::uint64_t bytes = 0;
    for (const OutputTensor& tensor :
         mlx_tensors(model, AffineFormat{.bits = bits, .group_size = 64})) {
      bytes += output_bytes(tensor);
    }
    sizes.push_back({fmt::format("--bits {}", bits), bytes});
  }
  for (const char* name : {"q8_0", "q4_k_m"}) {
    std::uint64_t bytes = 0;
    for (const NamedTensor& tensor : model.tensors) {
      bytes += output_bytes(
          {tensor.name, tensor.rows, gguf_encoding(model, tensor, *find_gguf_file_type(name))});
    }
    sizes.push_back({fmt::format("--type {}", name), bytes});
  }
  return sizes;
}

Result<KnownShape> known_shape(std::string name, ModelConfig config) {
  KnownShape shape;
  shape.name = std::move(name);
  KAKEYA_ASSIGN_OR_RETURN(shape.model.parameters, parameter_count(config));
  shape.weights = weights_of(config);
  shape.model.config = std::move(config);
  return shape;
}

bool is_folder_without_weights(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path + "/config.json", ignored)) return false;
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"}) {
    if (std::filesystem::exists(std::filesystem::symlink_status(path + "/" + name, ignored))) {
      return false;
    }
  }
  return true;
}

Result<std::optional<KnownShape>> shape_of_cut_file(const std::string& path) {
  const auto whole = GgufCheckpoint::open(path);
  if (whole || whole.error().code() != StatusCode::kDataLoss) return std::nullopt;
  const auto cut = GgufCheckpoint::open_beginning(path);
  if (!cut) return std::nullopt;  // what is wrong is said where the file is opened
  KAKEYA_ASSIGN_OR_RETURN(ModelConfig config, read_gguf_model_config(*cut));
  KnownShape shape;
  shape.name = path;
  KAKEYA_ASSIGN_OR_RETURN(shape.model.parameters, parameter_count(config));
  shape.model.config = std::move(config);
  std::uint64_t bytes = 0;
  for (const GgufTensor& tensor : cut->first().tensors()) {
    KAKEYA_ASSIGN_OR_RETURN(const std::uint64_t each,
                            gguf_tensor_bytes(tensor.shape, tensor.encoding));
    bytes += each;
  }
  shape.weights = {{"as in the file", bytes}};
  shape.missing =
      fmt::format("{} of {} bytes are there: download the rest, or name another file with --model",
                  cut->first().file().bytes().size(), cut->first().whole_bytes());
  return shape;
}

Result<std::uint64_t> bytes_of_session(EngineImpl& engine, const SessionOptions& session) {
  KAKEYA_ASSIGN_OR_RETURN(const SessionNeed need, engine.session_need(session, false, 0));
  Footprint footprint = need.session;
  footprint += estimate_workspace(need.workspace, engine.backend());
  return footprint.total_reserved();
}

// The largest context of 1 ... most with which a session takes at most `room` bytes; 0 if none is.
Result<std::int64_t> longest_in(EngineImpl& engine,
                                SessionOptions session,
                                std::int64_t most,
                                std::uint64_t room) {
  std::int64_t fits = 0;
  std::int64_t too_long = most + 1;
  while (too_long - fits > 1) {
    session.context = fits + (too_long - fits) / 2;
    KAKEYA_ASSIGN_OR_RETURN(const std::uint64_t bytes, bytes_of_session(engine, session));
    (bytes <= room ? fits : too_long) = session.context;
  }
  return fits;
}

// Adds what a token takes, without the session around it. `plan`: of the longest context.
void add_token_bytes(const KvCacheSpec& plan, KvSize& size) {
  for (const LayerCacheSpec& layer : plan.layers) {
    if (layer.is_coded()) continue;  // its exact rows are few, whatever the text
    const auto bytes = static_cast<std::uint64_t>(layer.position_bytes());
    (layer.window > 0 ? size.sliding_bytes_per_token : size.full_bytes_per_token) += bytes;
    if (layer.window == 0) continue;
    size.most_sliding_tokens = std::max(size.most_sliding_tokens, plan.capacity(layer));
  }
}

std::string longest_text(std::int64_t context) {
  return context == 0 ? "none" : fmt::to_string(context);
}

std::string weights_text(const KnownShape& shape) {
  std::string text = "\nweights, in forms of `kakeya quantize`:\n";
  if (shape.weights.size() == 1) text = "\nweights:\n";
  for (const WeightsSize& size : shape.weights) {
    fmt::format_to(std::back_inserter(text), "  {:<20}{:>11}  {} bytes\n", size.flags,
                   format_bytes(size.bytes), size.bytes);
  }
  return text + "  " + shape.missing + "\n";
}

std::string kv_text(const ShapeSizes& sizes) {
  std::string text = "\nKV cache, by --kv-full and --kv-sliding: bytes a token\n";
  const auto out = std::back_inserter(text);
  for (const KvSize& size : sizes.kv) {
    fmt::format_to(out, "  {:<8}", size.type);
    if (size.full_bytes_per_token > 0) {
      fmt::format_to(out, "{:>9} in full layers", size.full_bytes_per_token);
    }
    if (size.sliding_bytes_per_token > 0) {
      fmt::format_to(out, "{}{:>9} in sliding layers, which hold {} tokens at most: {}",
                     size.full_bytes_per_token > 0 ? ", " : "", size.sliding_bytes_per_token,
                     size.most_sliding_tokens,
                     format_bytes(size.sliding_bytes_per_token *
                                  static_cast<std::uint64_t>(size.most_sliding_tokens)));
    }
    text += '\n';
  }
  return text;
}

}  // namespace

Result<KnownShape> shape_by_name(const std::string& name) {
  KAKEYA_ASSIGN_OR_RETURN(ModelConfig config, named_shape(name, 0));
  KAKEYA_ASSIGN_OR_RETURN(KnownShape shape, known_shape(name, std::move(config)));
  shape.missing =
      "missing: this is a shape alone; name a folder or a GGUF file of such a model with --model";
  return shape;
}

Result<std::optional<KnownShape>> shape_without_weights(const std::string& path) {
  if (is_gguf_path(path)) return shape_of_cut_file(path);
  if (!is_folder_without_weights(path)) return std::nullopt;
  KAKEYA_ASSIGN_OR_RETURN(ModelConfig config, load_model_config(path));
  KAKEYA_ASSIGN_OR_RETURN(KnownShape shape, known_shape(path, std::move(config)));
  shape.missing = fmt::format(
      "missing: download model.safetensors, or its parts and model.safetensors.index.json, and "
      "tokenizer.json "
      "into {}, or name another folder or a GGUF file with --model",
      path);
  return shape;
}

std::vector<std::int64_t> contexts_to_tell(std::int64_t most, std::int64_t asked) {
  std::set<std::int64_t> contexts = {most};
  for (std::int64_t context = 1024; context < most; context *= 4) contexts.insert(context);
  if (asked > 0) contexts.insert(asked);
  return {contexts.begin(), contexts.end()};
}

Result<ShapeSizes> measure_shape(const KnownShape& shape,
                                 const EngineOptions& options,
                                 const std::vector<std::int64_t>& contexts,
                                 std::uint64_t limit_bytes) {
  ShapeSizes sizes{.contexts = contexts, .limit_bytes = limit_bytes, .kv = {}};
  KAKEYA_ASSIGN_OR_RETURN(const auto engine,
                          EngineImpl::without_weights(*shape.model.config, options));
  const std::int64_t most = shape.model.config->max_position_embeddings;
  for (const auto& [name, type] : kShownTypes) {
    KvSize size;
    size.type = name;
    SessionOptions session = options.session;
    session.kv_full = type;
    session.kv_sliding = is_calibrated(type) ? KvType::kInt8 : type;
    session.context = most;
    const auto plan = engine->plan_session(session, 1);
    if (!plan && type != KvType::kAuto) continue;  // the heads do not allow it
    if (!plan) return Unexpected(plan.error());
    add_token_bytes(plan->cache, size);
    for (const std::int64_t context : contexts) {
      session.context = context;
      KAKEYA_ASSIGN_OR_RETURN(const std::uint64_t bytes, bytes_of_session(*engine, session));
      size.session_bytes.push_back(bytes);
    }
    for (const WeightsSize& weights : shape.weights) {
      const std::uint64_t room = limit_bytes - std::min(limit_bytes, weights.bytes);
      KAKEYA_ASSIGN_OR_RETURN(const std::int64_t longest, longest_in(*engine, session, most, room));
      size.longest_contexts.push_back(longest);
    }
    sizes.kv.push_back(std::move(size));
  }
  return sizes;
}

std::string sizes_text(const KnownShape& shape, const ShapeSizes& sizes) {
  std::string text = fmt::format("\nsizes of {}, from its shape:\n{}", shape.name,
                                 summary_text(shape.model) + weights_text(shape) + kv_text(sizes));
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "\none session, without weights, by context:\n  {:<20}", "");
  for (const std::int64_t context : sizes.contexts) fmt::format_to(out, "{:>11}", context);
  for (const KvSize& size : sizes.kv) {
    fmt::format_to(out, "\n  {:<20}", size.type);
    for (const std::uint64_t bytes : size.session_bytes) {
      fmt::format_to(out, "{:>11}", format_bytes(bytes));
    }
  }
  fmt::format_to(out, "\n\nlongest context in {}, weights included:\n  {:<20}",
                 format_bytes(sizes.limit_bytes), "");
  for (const KvSize& size : sizes.kv) fmt::format_to(out, "{:>11}", size.type);
  for (std::size_t i = 0; i < shape.weights.size(); ++i) {
    fmt::format_to(out, "\n  {:<20}", shape.weights[i].flags);
    for (const KvSize& size : sizes.kv) {
      fmt::format_to(out, "{:>11}", longest_text(size.longest_contexts[i]));
    }
  }
  return text + "\n";
}

nlohmann::ordered_json sizes_json(const KnownShape& shape, const ShapeSizes& sizes) {
  nlohmann::ordered_json json = {{"name", shape.name}};
  add_summary(shape.model, json);
  json["missing"] = shape.missing;
  for (const WeightsSize& weights : shape.weights) {
    json["weights"].push_back({{"flags", weights.flags}, {"bytes", weights.bytes}});
  }
  json["limit_bytes"] = sizes.limit_bytes;
  for (const KvSize& size : sizes.kv) {
    nlohmann::ordered_json longest;
    for (std::size_t i = 0; i < shape.weights.size(); ++i) {
      longest[shape.weights[i].flags] = size.longest_contexts[i];
    }
    json["kv"].push_back({{"type", size.type},
                          {"full_bytes_per_token", size.full_bytes_per_token},
                          {"sliding_bytes_per_token", size.sliding_bytes_per_token},
                          {"most_sliding_tokens", size.most_sliding_tokens},
                          {"contexts", sizes.contexts},
                          {"session_bytes", size.session_bytes},
                          {"longest_context", longest}});
  }
  return json;
}

}  // namespace kakeya::cli
