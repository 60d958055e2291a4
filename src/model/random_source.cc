#include "model/random_source.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/random.h"
#include "base/status.h"

namespace kakeya {
namespace {

struct Spread {
  float center;
  float width;  // half of the interval
};

// A standard deviation of 0.02 is a uniform half width of 0.02 * sqrt(3).
Spread spread_of(const TensorSpec& spec) {
  if (spec.shape.size() == 1) return {1.0F, 0.1F};
  return {0.0F, 0.0346F};
}

// Blocks of random bytes stand for weights of the usual spread with these halves in them.
struct BlockScales {
  QuantizedFormat format;
  // Halves: their places in a block, and values.
  struct Half {
    std::int64_t place;
    float value;
  };
  Half scale;
  Half minimum;  // place -1: none
};
constexpr BlockScales kBlockScales[] = {
    // Codes of 4 bits spread by 4.6, of 8 bits by 74.
    {QuantizedFormat::kQ40, {0, 4.3e-3F}, {-1, 0.0F}},
    {QuantizedFormat::kQ80, {0, 2.7e-4F}, {-1, 0.0F}},
    // Scales and minimums of 6 bits are 31.5 in the middle, and codes 7.5.
    {QuantizedFormat::kQ4K, {0, 1.3e-4F}, {2, 1e-3F}},
    // Scales of 8 bits spread by 74, codes by 18.
    {QuantizedFormat::kQ6K, {208, 1.5e-5F}, {-1, 0.0F}},
};
constexpr QuantizedFormat kRandomFormats[] = {QuantizedFormat::kQ40, QuantizedFormat::kQ80,
                                              QuantizedFormat::kQ4K, QuantizedFormat::kQ6K};

const BlockScales& scales_of(QuantizedFormat format) {
  return *std::find_if(std::begin(kBlockScales), std::end(kBlockScales),
                       [&](const BlockScales& scales) { return scales.format == format; });
}

void write_half(std::byte* block, const BlockScales::Half& half) {
  if (half.place < 0) return;
  const std::uint16_t bits = float_to_half(half.value);
  std::memcpy(block + half.place, &bits, sizeof(bits));
}

void fill_floats(SequenceRng& rng, const Spread& spread, std::span<std::byte> out) {
  for (std::size_t i = 0; i < out.size(); i += sizeof(BFloat16)) {
    const BFloat16 value = to_bfloat16(spread.center + spread.width * rng.symmetric());
    std::memcpy(out.data() + i, &value, sizeof(value));
  }
}

void fill_blocks(SequenceRng& rng, QuantizedFormat format, std::span<std::byte> out) {
  for (std::size_t i = 0; i < out.size(); i += sizeof(std::uint64_t)) {
    const std::uint64_t word = rng.next();
    std::memcpy(out.data() + i, &word, std::min(sizeof(word), out.size() - i));
  }
  const BlockScales& scales = scales_of(format);
  const auto bytes = static_cast<std::size_t>(quantized_block_bytes(format));
  for (std::size_t i = 0; i < out.size(); i += bytes) {
    write_half(out.data() + i, scales.scale);
    write_half(out.data() + i, scales.minimum);
  }
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
  const Spread spread = spread_of(spec);
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
      fill_blocks(rng, *format_, out);
    } else {
      fill_floats(rng, spread, out);
    }
  });
  view.data = values_.data();
  return view;
}

}  // namespace kakeya
