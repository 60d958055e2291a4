#include "convert/gguf_model.h"

#include <algorithm>
#include <filesystem>
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

Result<std::vector<OutputTensor>> gguf_tensors(const SourceModel& model, const GgufFileType& type) {
  const GgufArchitecture architecture = model.config.architecture == Architecture::kGemma4
                                            ? GgufArchitecture::kGemma4
                                            : GgufArchitecture::kQwen3;
  std::vector<OutputTensor> tensors;
  for (const NamedTensor& tensor : model.tensors) {
    const std::string name = gguf_tensor_name(architecture, tensor.name);
    if (name.empty()) {
      return error(StatusCode::kUnimplemented, "{}: GGUF has no name for {}", model.path,
                   tensor.name);
    }
    tensors.push_back({name, tensor.rows, gguf_encoding(model, tensor, type)});
  }
  return tensors;
}

// Readers take the number of tokens for that of the embedding's rows.
Status check_tokens(const SourceModel& model, std::span<const GgufMetadata> metadata) {
  for (const GgufMetadata& entry : metadata) {
    if (entry.key != "tokenizer.ggml.tokens") continue;
    const auto* tokens = std::get_if<std::vector<std::string>>(&entry.value);
    if (tokens == nullptr || std::ssize(*tokens) == model.config.vocab_size) return {};
    return invalid_argument("{}/tokenizer.json: expected tokens below the vocabulary's {}, got {}",
                            model.path, model.config.vocab_size, tokens->size() - 1);
  }
  return {};
}

GgufEncoding as_gguf(const TensorEncoding& encoding) {
  if (const auto* dtype = std::get_if<DType>(&encoding)) return *dtype;
  return std::get<QuantizedFormat>(encoding);
}

Result<std::vector<GgufMetadata>> metadata_of(const SourceModel& model, const GgufFileType& type) {
  std::error_code ignored;
  const fs::path folder = fs::canonical(model.path, ignored);
  if (model.drafter) {
    return error(StatusCode::kUnimplemented, "{}: drafters are not written as GGUF files",
                 model.path);
  }
  auto metadata = gguf_model_metadata(model.config, folder.filename().string(), type.number);
  if (!metadata) return Unexpected(metadata.error().with_context(model.path));
  KAKEYA_ASSIGN_OR_RETURN(auto tokenizer, gguf_tokenizer_metadata(model));
  std::move(tokenizer.begin(), tokenizer.end(), std::back_inserter(*metadata));
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
  KAKEYA_ASSIGN_OR_RETURN(const auto metadata, metadata_of(model, type));
  KAKEYA_TRY(check_tokens(model, metadata));
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
  const std::vector<float> factors = gguf_rope_factors(model.config);
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
