#include "convert/gguf_model.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "convert/companion_files.h"
#include "convert/gguf_metadata.h"
#include "formats/gguf_names.h"
#include "formats/gguf_write.h"

namespace kakeya {

namespace {

namespace fs = std::filesystem;

GgufArchitecture architecture_of(const SourceModel& model) {
  if (model.drafter) return GgufArchitecture::kDflash;
  return model.config.architecture == Architecture::kGemma4 ? GgufArchitecture::kGemma4
                                                            : GgufArchitecture::kQwen3;
}

Result<std::vector<OutputTensor>> gguf_tensors(const SourceModel& model, const GgufFileType& type) {
  std::vector<OutputTensor> tensors;
  for (const NamedTensor& tensor : model.tensors) {
    const std::string name = gguf_tensor_name(architecture_of(model), tensor.name);
    if (name.empty()) {
      return error(StatusCode::kUnimplemented, "{}: GGUF has no name for {}", model.path,
                   tensor.name);
    }
    tensors.push_back({name, tensor.rows, gguf_encoding(model, tensor, type)});
  }
  return tensors;
}

GgufEncoding as_gguf(const TensorEncoding& encoding) {
  if (const auto* dtype = std::get_if<DType>(&encoding)) return *dtype;
  return std::get<QuantizedFormat>(encoding);
}

Result<std::vector<GgufMetadata>> network_metadata(const SourceModel& model,
                                                   const GgufFileType& type) {
  std::error_code ignored;
  const std::string name = fs::canonical(model.path, ignored).filename().string();
  auto metadata = model.drafter ? gguf_drafter_metadata(*model.drafter, name, type.number)
                                : gguf_model_metadata(model.config, name, type.number);
  if (!metadata) return Unexpected(metadata.error().with_context(model.path));
  return metadata;
}

// Of a model's folder. Readers take the number of tokens for that of the embedding's rows.
Result<std::vector<GgufMetadata>> tokenizer_metadata(const std::string& dir,
                                                     const ModelConfig& config) {
  KAKEYA_ASSIGN_OR_RETURN(auto metadata, gguf_tokenizer_metadata(dir, config));
  for (const GgufMetadata& entry : metadata) {
    if (entry.key != "tokenizer.ggml.tokens") continue;
    const auto* tokens = std::get_if<std::vector<std::string>>(&entry.value);
    if (tokens == nullptr || std::ssize(*tokens) == config.vocab_size) break;
    return invalid_argument("{}/tokenizer.json: expected tokens below the vocabulary's {}, got {}",
                            dir, config.vocab_size, tokens->size() - 1);
  }
  return metadata;
}

// That of the drafter's target, with the drafter's mask.
Result<std::vector<GgufMetadata>> drafter_tokenizer_metadata(const SourceModel& model,
                                                             const std::string& target) {
  if (target.empty()) {
    return invalid_argument(
        "{}: the GGUF file of a drafter holds the tokenizer of its model: expected the folder of "
        "that (--model), got none",
        model.path);
  }
  KAKEYA_ASSIGN_OR_RETURN(const ModelConfig config, load_model_config(target));
  if (const Status fits = check_drafter_fits(*model.drafter, config); !fits) {
    return Unexpected(fits.error().with_context(target));
  }
  KAKEYA_ASSIGN_OR_RETURN(auto metadata, tokenizer_metadata(target, config));
  constexpr std::string_view kMask = "tokenizer.ggml.mask_token_id";
  std::erase_if(metadata, [&](const GgufMetadata& entry) { return entry.key == kMask; });
  metadata.push_back(
      {std::string(kMask), static_cast<std::uint32_t>(model.drafter->mask_token_id)});
  return metadata;
}

Result<std::vector<GgufMetadata>> metadata_of(const SourceModel& model,
                                              const GgufFileType& type,
                                              const std::string& drafter_target) {
  if (!model.drafter && !drafter_target.empty()) {
    return invalid_argument(
        "{}: expected a drafter where its model is given (--model), got a model", model.path);
  }
  KAKEYA_ASSIGN_OR_RETURN(auto metadata, network_metadata(model, type));
  KAKEYA_ASSIGN_OR_RETURN(auto tokenizer, model.drafter
                                              ? drafter_tokenizer_metadata(model, drafter_target)
                                              : tokenizer_metadata(model.path, model.config));
  std::move(tokenizer.begin(), tokenizer.end(), std::back_inserter(metadata));
  return metadata;
}

Status check_target(const std::string& target, bool replace, std::uint64_t bytes) {
  std::error_code ignored;
  if (fs::is_directory(target, ignored)) {
    return error(StatusCode::kFailedPrecondition, "{}: expected a file or nothing, got a folder",
                 target);
  }
  if (fs::exists(target, ignored) && !replace) {
    return error(StatusCode::kFailedPrecondition,
                 "{}: expected no such file, got one (--force replaces it)", target);
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
  KAKEYA_ASSIGN_OR_RETURN(const auto metadata, metadata_of(model, type, options.drafter_target));
  KAKEYA_ASSIGN_OR_RETURN(const auto tensors, gguf_tensors(model, type));
  ConversionReport report = report_of(model, tensors);
  KAKEYA_TRY(check_target(target, options.replace, report.bytes_after));
  ThreadPool pool({.num_threads = options.threads, .pin = false});
  const auto progress = [&](std::uint64_t done, std::uint64_t total) -> Status {
    report.buffer_bytes = std::max(report.buffer_bytes, budget.footprint().total_reserved());
    return options.progress ? options.progress(done, total) : Status();
  };
  TensorEncoder encoder(tensors, progress, budget, pool);
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
