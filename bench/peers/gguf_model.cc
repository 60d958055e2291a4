#include "gguf_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/status.h"
#include "formats/drafter_config.h"
#include "formats/gguf_names.h"
#include "formats/gguf_write.h"
#include "formats/model_tensors.h"
#include "gguf_metadata.h"
#include "model/checkpoint_source.h"
#include "random_blocks.h"
#include "tensor/dtype.h"

namespace kakeya::peers {

namespace {

constexpr std::size_t kPieceBytes = std::size_t{4} << 20;

// What the network multiplies activations with, but for the small matrix of the router, which files
// hold in f32.
bool is_matrix(const TensorSpec& spec) {
  return spec.shape.size() >= 2 && spec.name.find("router.") == std::string::npos;
}

bool is_embedding(const TensorSpec& spec) {
  return spec.name == "embed_tokens.weight" || spec.name == "embed_tokens_per_layer.weight";
}

std::int64_t elements(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

std::int64_t row_bytes(GgufEncoding encoding, std::int64_t columns) {
  if (const auto* format = std::get_if<QuantizedFormat>(&encoding)) {
    return quantized_row_bytes(*format, columns);
  }
  return columns * static_cast<std::int64_t>(dtype_bytes(std::get<DType>(encoding)));
}

// Rows of random weights, some at a time. A token's values keep their size through the matrix.
Status write_random_rows(const Shape& shape,
                         GgufEncoding encoding,
                         std::uint64_t seed,
                         const GgufSink& sink) {
  const std::int64_t columns = shape.back();
  const std::int64_t rows = elements(shape) / columns;
  const auto bytes = static_cast<std::size_t>(row_bytes(encoding, columns));
  const float deviation = 1.0F / std::sqrt(static_cast<float>(columns));
  const std::int64_t rows_at_once =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(kPieceBytes / bytes));
  SequenceRng rng(seed);
  std::vector<std::byte> piece;
  for (std::int64_t begin = 0; begin < rows; begin += rows_at_once) {
    const std::int64_t count = std::min(rows_at_once, rows - begin);
    piece.resize(static_cast<std::size_t>(count) * bytes);
    fill_random_row(encoding, deviation, rng, piece);
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
            std::vector<float> values(static_cast<std::size_t>(elements(shape)));
            SequenceRng rng(seed);
            for (float& value : values) value = 1.0F + 0.1F * rng.symmetric();
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
  auto factors = rope_factors(config);
  const auto pairs = static_cast<std::int64_t>(factors.size());
  return {.name = std::string(kGgufRopeFactors),
          .shape = {pairs},
          .encoding = DType::kF32,
          .write = [factors = std::move(factors)](const GgufSink& sink) {
            return write_floats(factors, sink);
          }};
}

// One value of F32, F16 or BF16 at `index`.
float element(const TensorView& view, std::size_t index) {
  const std::byte* at = view.data + index * dtype_bytes(view.dtype);
  if (view.dtype == DType::kF32) {
    float value = 0.0F;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof(bits));
  return view.dtype == DType::kF16 ? half_to_float(bits) : to_float(BFloat16{bits});
}

Status write_as_f32(const TensorView& view, const GgufSink& sink) {
  std::vector<float> values(static_cast<std::size_t>(elements(view.shape)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = element(view, i);
  return write_floats(values, sink);
}

// The tensors of a drafter; `source` must outlive what is returned.
Result<std::vector<GgufTensorSource>> stored_tensors(const std::vector<TensorSpec>& specs,
                                                     CheckpointSource& source) {
  std::vector<GgufTensorSource> tensors;
  for (const TensorSpec& spec : specs) {
    if (spec.presence != TensorPresence::kRequired) continue;
    KAKEYA_ASSIGN_OR_RETURN(const TensorView view, source.tensor(spec.name));
    const DType dtype = view.dtype;
    if (dtype != DType::kF32 && dtype != DType::kF16 && dtype != DType::kBF16) {
      return error(StatusCode::kUnimplemented, "{}: expected F32, F16 or BF16, got {}", spec.name,
                   dtype_name(dtype));
    }
    const bool as_stored = is_matrix(spec);
    tensors.push_back({.name = gguf_tensor_name(GgufArchitecture::kDflash, spec.name),
                       .shape = spec.shape,
                       .encoding = as_stored ? dtype : DType::kF32,
                       .write = [view, as_stored](const GgufSink& sink) -> Status {
                         if (!as_stored) return write_as_f32(view, sink);
                         const auto bytes = static_cast<std::size_t>(elements(view.shape)) *
                                            dtype_bytes(view.dtype);
                         return sink({view.data, bytes});
                       }});
  }
  return tensors;
}

// What files hold where rows are not a multiple of 256.
QuantizedFormat format_of_small_blocks(QuantizedFormat format) {
  if (format == QuantizedFormat::kQ4K) return QuantizedFormat::kQ50;
  if (format == QuantizedFormat::kQ5K) return QuantizedFormat::kQ51;
  if (format == QuantizedFormat::kQ6K) return QuantizedFormat::kQ80;
  return format;
}

}  // namespace

Result<GgufEncoding> encoding_for(GgufEncoding wanted, std::int64_t columns) {
  if (!has_random_rows(wanted)) {
    return invalid_argument("random weights cannot be made of type {}", gguf_encoding_name(wanted));
  }
  auto* format = std::get_if<QuantizedFormat>(&wanted);
  if (format == nullptr) return wanted;
  if (columns % quantized_block_elements(*format) != 0) *format = format_of_small_blocks(*format);
  if (columns % quantized_block_elements(*format) == 0) return wanted;
  return invalid_argument("rows of {} elements: expected a multiple of {} for type {}", columns,
                          quantized_block_elements(*format), gguf_encoding_name(wanted));
}

Status write_random_model(const std::string& path,
                          const ModelConfig& config,
                          const RandomModelOptions& options) {
  KAKEYA_ASSIGN_OR_RETURN(const auto metadata, model_metadata(config));
  std::vector<GgufTensorSource> tensors = {rope_tensor(config)};
  SequenceRng seeds(options.seed);
  for (const TensorSpec& spec : expected_tensors(config)) {
    if (spec.presence != TensorPresence::kRequired) continue;
    KAKEYA_ASSIGN_OR_RETURN(GgufTensorSource tensor, random_tensor(spec, options, seeds.next()));
    tensors.push_back(std::move(tensor));
  }
  return write_gguf(path, metadata, tensors);
}

Status write_drafter(const std::string& path,
                     const std::string& dir,
                     const std::string& target_dir) {
  KAKEYA_ASSIGN_OR_RETURN(const ModelConfig target, load_model_config(target_dir));
  KAKEYA_ASSIGN_OR_RETURN(const DrafterConfig config, load_drafter_config(dir));
  KAKEYA_TRY(check_drafter_fits(config, target));
  KAKEYA_ASSIGN_OR_RETURN(const auto metadata, drafter_metadata(config, target));
  const std::vector<TensorSpec> specs = expected_tensors(config);
  KAKEYA_ASSIGN_OR_RETURN(const auto source, CheckpointSource::open(dir, specs));
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<GgufTensorSource> tensors,
                          stored_tensors(specs, *source));
  return write_gguf(path, metadata, tensors);
}

}  // namespace kakeya::peers
