#include "gguf_model.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/status.h"
#include "convert/gguf_metadata.h"
#include "convert/gguf_types.h"
#include "formats/gguf_layout.h"
#include "formats/gguf_names.h"
#include "formats/gguf_write.h"
#include "formats/model_tensors.h"
#include "made_up_vocabulary.h"
#include "tensor/random_weights.h"

namespace kakeya::peers {

namespace {

constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
constexpr float kSqrt3 = 1.7320508F;  // half width of uniform numbers whose deviation is 1

// True for tensors that the network multiplies activations with, but for the small matrix of the
// router, which files hold in f32.
bool is_matrix(const TensorSpec& spec) {
  return spec.shape.size() >= 2 && spec.name.find("router.") == std::string::npos;
}

bool is_embedding(const TensorSpec& spec) {
  return spec.name == "embed_tokens.weight" || spec.name == "embed_tokens_per_layer.weight";
}

// Rows of random weights, some at a time. A token's values keep their size through the matrix.
Status write_random_rows(const Shape& shape,
                         GgufEncoding encoding,
                         std::uint64_t seed,
                         const GgufSink& sink) {
  const std::int64_t columns = shape.back();
  const std::int64_t rows = num_elements(shape) / columns;
  KAKEYA_ASSIGN_OR_RETURN(const std::uint64_t bytes, gguf_tensor_bytes({columns}, encoding));
  const float deviation = 1.0F / std::sqrt(static_cast<float>(columns));
  const std::int64_t rows_at_once =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(kPieceBytes / bytes));
  SequenceRng rng(seed);
  std::vector<std::byte> piece;
  for (std::int64_t begin = 0; begin < rows; begin += rows_at_once) {
    const std::int64_t count = std::min(rows_at_once, rows - begin);
    piece.resize(static_cast<std::size_t>(count) * bytes);
    if (const auto* format = std::get_if<QuantizedFormat>(&encoding)) {
      fill_random_blocks(*format, deviation, rng, piece);
    } else {
      fill_random_numbers(std::get<DType>(encoding), {.width = kSqrt3 * deviation}, rng, piece);
    }
    KAKEYA_TRY(sink(piece));
  }
  return {};
}

Status write_floats(const std::vector<float>& values, const GgufSink& sink) {
  return sink(std::as_bytes(std::span(values)));
}

// A norm or scale; the router's matrix counts as a matrix of f32.
GgufTensorSource random_vector(std::string name, const TensorSpec& spec, std::uint64_t seed) {
  return {.name = std::move(name),
          .shape = spec.shape,
          .encoding = DType::kF32,
          .write = [shape = spec.shape, seed](const GgufSink& sink) -> Status {
            if (shape.size() >= 2) return write_random_rows(shape, DType::kF32, seed, sink);
            std::vector<float> values(static_cast<std::size_t>(num_elements(shape)));
            SequenceRng rng(seed);
            fill_random_numbers(DType::kF32, {.center = 1.0F, .width = 0.1F}, rng,
                                std::as_writable_bytes(std::span(values)));
            return write_floats(values, sink);
          }};
}

Result<GgufTensorSource> random_tensor(const TensorSpec& spec,
                                       const RandomModelOptions& options,
                                       std::uint64_t seed) {
  const std::string name = gguf_tensor_name(GgufArchitecture::kGemma4, spec.name);
  if (!is_matrix(spec)) return random_vector(name, spec, seed);
  KAKEYA_ASSIGN_OR_RETURN(
      const GgufEncoding encoding,
      encoding_for(is_embedding(spec) ? options.embedding : options.matrices, spec.shape.back()));
  return GgufTensorSource{.name = name,
                          .shape = spec.shape,
                          .encoding = encoding,
                          .write = [shape = spec.shape, encoding, seed](const GgufSink& sink) {
                            return write_random_rows(shape, encoding, seed, sink);
                          }};
}

GgufTensorSource rope_tensor(const ModelConfig& config) {
  auto factors = gguf_rope_factors(config);
  const auto pairs = static_cast<std::int64_t>(factors.size());
  return {.name = std::string(kGgufRopeFactors),
          .shape = {pairs},
          .encoding = DType::kF32,
          .write = [factors = std::move(factors)](const GgufSink& sink) {
            return write_floats(factors, sink);
          }};
}

// general.file_type: readers look at the tensors instead.
constexpr std::uint32_t kGuessedFileType = 1024;

bool has_random_elements(GgufEncoding encoding) {
  if (const auto* format = std::get_if<QuantizedFormat>(&encoding)) {
    return has_random_blocks(*format);
  }
  const DType dtype = std::get<DType>(encoding);
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

}  // namespace

Result<GgufEncoding> encoding_for(GgufEncoding wanted, std::int64_t columns) {
  if (!has_random_elements(wanted)) {
    return invalid_argument("random weights cannot be made of type {}", gguf_encoding_name(wanted));
  }
  const auto* format = std::get_if<QuantizedFormat>(&wanted);
  if (format == nullptr) return wanted;
  if (const auto fitting = gguf_format_of_rows(*format, columns)) return *fitting;
  return invalid_argument("rows of {} elements: expected whole blocks of type {}", columns,
                          gguf_encoding_name(wanted));
}

Status write_random_model(const std::string& path,
                          const ModelConfig& config,
                          const RandomModelOptions& options) {
  if (config.architecture != Architecture::kGemma4) {
    return error(StatusCode::kUnimplemented,
                 "GGUF files for comparisons are written of Gemma 4 models, got {}",
                 config.model_type);
  }
  KAKEYA_ASSIGN_OR_RETURN(auto metadata,
                          gguf_model_metadata(config, "random weights", kGuessedFileType));
  std::vector<GgufMetadata> vocabulary = made_up_vocabulary(config);
  std::move(vocabulary.begin(), vocabulary.end(), std::back_inserter(metadata));
  std::vector<GgufTensorSource> tensors = {rope_tensor(config)};
  SequenceRng seeds(options.seed);
  for (const TensorSpec& spec : expected_tensors(config)) {
    if (spec.presence != TensorPresence::kRequired) continue;
    KAKEYA_ASSIGN_OR_RETURN(GgufTensorSource tensor, random_tensor(spec, options, seeds.next()));
    tensors.push_back(std::move(tensor));
  }
  return write_gguf(path, metadata, tensors);
}

}  // namespace kakeya::peers
