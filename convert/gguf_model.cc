#include "convert/gguf_model.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "convert/companion_files.h"
#include "convert/gguf_companions.h"
#include "convert/gguf_metadata.h"
#include "formats/gguf_layout.h"
#include "formats/gguf_names.h"
#include "formats/gguf_write.h"

namespace kakeya {

namespace {

namespace fs = std::filesystem;

GgufArchitecture architecture_of(const SourceModel& model) {
  if (model.drafter) return GgufArchitecture::kDflash;
  return gguf_architecture_of(model.config.architecture);
}

Result<std::vector<OutputTensor>> gguf_tensors(const SourceModel& model, const GgufFileType& type) {
  std::vector<OutputTensor> tensors;
  for (const NamedTensor& tensor : model.tensors) {
    const std::string name = gguf_tensor_name(architecture_of(model), tensor.name);
    if (name.empty()) {
      return error(StatusCode::kUnimplemented, "{}: GGUF has no name for {}", model.path,
                   tensor.name);
    }
    tensors.push_back({name, tensor.rows_of_gguf(), gguf_encoding(model, tensor, type)});
  }
  return tensors;
}

GgufEncoding as_gguf(const TensorEncoding& encoding) {
  if (const auto* dtype = std::get_if<DType>(&encoding)) return *dtype;
  return std::get<QuantizedFormat>(encoding);
}

using Metadata = std::vector<GgufMetadata>;

bool has_key(const Metadata& metadata, std::string_view key) {
  return std::any_of(metadata.begin(), metadata.end(),
                     [&](const GgufMetadata& entry) { return entry.key == key; });
}

// The keys of the file that begin so and are not there yet.
void copy_keys(const GgufFile& file, std::string_view prefix, Metadata& metadata) {
  for (const GgufEntry& entry : file.metadata()) {
    if (!entry.key.starts_with(prefix) || entry.key == kGgufAlignmentKey) continue;
    if (!has_key(metadata, entry.key)) metadata.push_back({std::string(entry.key), entry.value});
  }
}

// general.* and the keys of the architecture.
Result<Metadata> network_metadata(const SourceModel& model, const GgufFileType& type) {
  auto metadata = model.drafter ? gguf_drafter_metadata(*model.drafter, model.name, type.number)
                                : gguf_model_metadata(model.config, model.name, type.number);
  if (!metadata) return Unexpected(metadata.error().with_context(model.path));
  if (model.gguf) {
    copy_keys(model.gguf->first(), "general.", *metadata);
  } else if (!model.drafter) {
    KAKEYA_ASSIGN_OR_RETURN(auto sampling, gguf_sampling_metadata(model.path));
    std::move(sampling.begin(), sampling.end(), std::back_inserter(*metadata));
  }
  return metadata;
}

// Where a file's tokenizer is from: of a model it is the model, of a drafter's folder its target.
struct TokenizerSource {
  std::string path;
  ModelConfig config;
  std::shared_ptr<const GgufCheckpoint> gguf;  // null: a folder
};

Result<TokenizerSource> find_tokenizer(const SourceModel& model, const std::string& target) {
  const bool drafter_folder = model.drafter && !model.gguf;
  if (!drafter_folder && !target.empty()) {
    return invalid_argument(
        "{}: expected the folder of a drafter where its model is given "
        "(GgufOptions::drafter_target), got {}",
        model.path, model.drafter ? "a file with a tokenizer" : "a model");
  }
  if (!drafter_folder) return TokenizerSource{model.path, model.config, model.gguf};
  if (target.empty()) {
    return invalid_argument(
        "{}: the GGUF file of a drafter holds the tokenizer of its model: expected the folder of "
        "that (GgufOptions::drafter_target), got none",
        model.path);
  }
  TokenizerSource source = {.path = target, .config = {}, .gguf = {}};
  KAKEYA_ASSIGN_OR_RETURN(source.config, load_model_config(target));
  if (const Status fits = check_drafter_fits(*model.drafter, source.config); !fits) {
    return Unexpected(fits.error().with_context(target));
  }
  if (is_gguf_path(target)) {
    KAKEYA_ASSIGN_OR_RETURN(GgufCheckpoint checkpoint, GgufCheckpoint::open(target));
    source.gguf = std::make_shared<const GgufCheckpoint>(std::move(checkpoint));
  }
  return source;
}

// tokenizer.*, which live as long as the source.
Result<Metadata> tokenizer_metadata(const TokenizerSource& source) {
  Metadata metadata;
  if (source.gguf) {
    copy_keys(source.gguf->first(), "tokenizer.", metadata);
    return metadata;
  }
  KAKEYA_ASSIGN_OR_RETURN(metadata, gguf_tokenizer_metadata(source.path, source.config));
  for (const GgufMetadata& entry : metadata) {
    if (entry.key != "tokenizer.ggml.tokens") continue;
    // Readers take the number of tokens for that of the embedding's rows.
    const auto* tokens = std::get_if<std::vector<std::string>>(&entry.value);
    if (tokens == nullptr || std::ssize(*tokens) == source.config.vocab_size) break;
    return invalid_argument("{}/tokenizer.json: expected tokens below the vocabulary's {}, got {}",
                            source.path, source.config.vocab_size, tokens->size() - 1);
  }
  return metadata;
}

Result<Metadata> metadata_of(const SourceModel& model,
                             const TokenizerSource& tokenizer,
                             const GgufFileType& type) {
  KAKEYA_ASSIGN_OR_RETURN(Metadata metadata, network_metadata(model, type));
  KAKEYA_ASSIGN_OR_RETURN(Metadata texts, tokenizer_metadata(tokenizer));
  if (model.drafter) {
    constexpr const char* kMask = "tokenizer.ggml.mask_token_id";
    std::erase_if(texts, [&](const GgufMetadata& entry) { return entry.key == kMask; });
    texts.push_back({kMask, static_cast<std::uint32_t>(model.drafter->mask_token_id)});
  }
  std::move(texts.begin(), texts.end(), std::back_inserter(metadata));
  return metadata;
}

Status check_target(const SourceModel& model,
                    const std::string& target,
                    bool replace,
                    std::uint64_t bytes) {
  std::error_code ignored;
  for (const GgufFile& file : model.gguf ? model.gguf->files() : std::span<const GgufFile>()) {
    if (!fs::equivalent(file.path(), target, ignored)) continue;
    return error(StatusCode::kFailedPrecondition, "{}: expected another file than the source",
                 target);
  }
  if (fs::is_directory(target, ignored)) {
    return error(StatusCode::kFailedPrecondition, "{}: expected a file or nothing, got a folder",
                 target);
  }
  if (fs::exists(target, ignored) && !replace) {
    return error(StatusCode::kFailedPrecondition,
                 "{}: expected no such file, got one (GgufOptions::replace replaces it)", target);
  }
  return check_room(fs::path(target).parent_path().string(), bytes);
}

}  // namespace

Result<ConversionReport> convert_to_gguf(const std::string& source,
                                         const std::string& target,
                                         const GgufFileType& type,
                                         const GgufOptions& options,
                                         MemoryBudget& budget) {
  KAKEYA_ASSIGN_OR_RETURN(const SourceModel model, open_source_model(source));
  if (std::holds_alternative<QuantizedFormat>(type.encoding)) KAKEYA_TRY(check_unquantized(model));
  KAKEYA_ASSIGN_OR_RETURN(const TokenizerSource tokenizer,
                          find_tokenizer(model, options.drafter_target));
  KAKEYA_ASSIGN_OR_RETURN(const Metadata metadata, metadata_of(model, tokenizer, type));
  KAKEYA_ASSIGN_OR_RETURN(const auto tensors, gguf_tensors(model, type));
  ConversionReport report = report_of(model, tensors);
  KAKEYA_TRY(check_target(model, target, options.replace, report.bytes_after));
  ThreadPool pool({.num_threads = options.threads, .pin = false});
  const auto progress = [&](std::uint64_t done, std::uint64_t total) -> Status {
    report.buffer_bytes = std::max(report.buffer_bytes, budget.footprint().total_reserved());
    return options.progress ? options.progress(done, total) : Status();
  };
  TensorEncoder encoder(tensors, progress, budget, pool, options.importance);
  std::vector<GgufTensorSource> sources;
  const std::vector<float> factors =
      model.drafter ? std::vector<float>() : gguf_rope_factors(model.config);
  if (!factors.empty()) {
    sources.push_back(
        {std::string(kGgufRopeFactors),
         {std::ssize(factors)},
         DType::kF32,
         [&](const GgufSink& sink) { return sink(std::as_bytes(std::span(factors))); }});
  }
  for (const OutputTensor& tensor : tensors) {
    sources.push_back(
        {tensor.name, tensor.rows.shape(), as_gguf(tensor.encoding), [&](const GgufSink& sink) {
           return encoder.encode(
               tensor, [&](std::size_t, std::span<const std::byte> bytes) { return sink(bytes); });
         }});
  }
  KAKEYA_TRY(write_gguf(target, metadata, sources));
  return report;
}

}  // namespace kakeya
