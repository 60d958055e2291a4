#include "model/random_source.h"

#include <algorithm>
#include <functional>

#include "base/random.h"
#include "base/status.h"
#include "tensor/random_weights.h"

namespace kakeya {
namespace {

constexpr QuantizedFormat kRandomFormats[] = {QuantizedFormat::kQ40, QuantizedFormat::kQ80,
                                              QuantizedFormat::kQ4K, QuantizedFormat::kQ6K};
constexpr float kDeviation = 0.02F;  // of trained matrices

// A standard deviation of 0.02 is a uniform half width of 0.02 * sqrt(3). The norms behind branches
// are small: without training branches are much the same for all tokens, which would all come to be
// routed to the same experts within some layers.
RandomSpread spread_of(const TensorSpec& spec) {
  if (spec.shape.size() == 1 && spec.name.find("post_") != std::string::npos) {
    return {.center = 0.01F, .width = 0.001F};
  }
  if (spec.shape.size() == 1) return {.center = 1.0F, .width = 0.1F};
  return {.center = 0.0F, .width = 0.0346F};
}

}  // namespace

std::span<const QuantizedFormat> random_formats() {
  return kRandomFormats;
}

RandomSource::RandomSource(std::vector<TensorSpec> specs,
                           std::uint64_t seed,
                           ThreadPool& pool,
                           std::optional<QuantizedFormat> format)
    : seed_(seed), pool_(pool), format_(format) {
  for (TensorSpec& spec : specs) {
    if (spec.presence != TensorPresence::kRequired) continue;
    std::string name = spec.name;
    specs_.emplace(std::move(name), std::move(spec));
  }
}

Result<TensorView> RandomSource::describe(std::string_view name) const {
  const auto it = specs_.find(name);
  if (it == specs_.end()) return error(StatusCode::kInternal, "no tensor {} was asked for", name);
  const TensorSpec& spec = it->second;
  TensorView view = {.shape = spec.shape, .dtype = DType::kBF16, .name = spec.name};
  if (format_ && spec.shape.size() > 1 && spec.name.find("router") == std::string::npos &&
      spec.shape.back() % quantized_block_elements(*format_) == 0) {
    view.dtype = DType::kF32;
    view.quantization = *format_;
  }
  return view;
}

Result<TensorView> RandomSource::tensor(std::string_view name) {
  KAKEYA_ASSIGN_OR_RETURN(TensorView view, describe(name));
  const TensorSpec& spec = specs_.find(name)->second;
  const RandomSpread spread = spread_of(spec);
  values_.resize(view.bytes());
  // Pieces with seeds of their own, so that the values do not depend on the number of threads.
  const std::size_t block = view.is_quantized()
                                ? static_cast<std::size_t>(quantized_block_bytes(*format_))
                                : sizeof(BFloat16);
  const std::size_t piece_bytes = (std::size_t{2} << 20) / block * block;
  const std::uint64_t seed = seed_ ^ std::hash<std::string_view>{}(name);
  const auto pieces = (values_.size() + piece_bytes - 1) / piece_bytes;
  pool_.parallel_for(static_cast<std::int64_t>(pieces), [&](std::int64_t piece) {
    SequenceRng rng(seed + static_cast<std::uint64_t>(piece) * 0x9e3779b97f4a7c15U);
    const std::size_t begin = static_cast<std::size_t>(piece) * piece_bytes;
    const std::span<std::byte> out(values_.data() + begin,
                                   std::min(piece_bytes, values_.size() - begin));
    if (view.is_quantized()) {
      fill_random_blocks(*format_, kDeviation, rng, out);
    } else {
      fill_random_numbers(view.dtype, spread, rng, out);
    }
  });
  view.data = values_.data();
  return view;
}

}  // namespace kakeya
