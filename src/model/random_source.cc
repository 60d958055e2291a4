#include "model/random_source.h"

#include <algorithm>
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

}  // namespace

RandomSource::RandomSource(std::vector<TensorSpec> specs, std::uint64_t seed, ThreadPool& pool)
    : seed_(seed), pool_(pool) {
  for (TensorSpec& spec : specs) {
    if (spec.presence != TensorPresence::kRequired) continue;
    std::string name = spec.name;
    specs_.emplace(std::move(name), std::move(spec));
  }
}

Result<TensorView> RandomSource::describe(std::string_view name) const {
  const auto it = specs_.find(name);
  if (it == specs_.end()) return error(StatusCode::kInternal, "no tensor {} was asked for", name);
  return TensorView{
      .data = nullptr, .shape = it->second.shape, .dtype = DType::kBF16, .name = it->second.name};
}

Result<TensorView> RandomSource::tensor(std::string_view name) {
  KAKEYA_ASSIGN_OR_RETURN(TensorView view, describe(name));
  const TensorSpec& spec = specs_.find(name)->second;
  const Spread spread = spread_of(spec);
  const std::int64_t count = num_elements(spec.shape);
  values_.resize(static_cast<std::size_t>(count));
  // Pieces with seeds of their own, so that the values do not depend on the number of threads.
  constexpr std::int64_t kPiece = 1 << 20;
  const std::uint64_t seed = seed_ ^ std::hash<std::string_view>{}(name);
  pool_.parallel_for((count + kPiece - 1) / kPiece, [&](std::int64_t piece) {
    SequenceRng rng(seed + static_cast<std::uint64_t>(piece) * 0x9e3779b97f4a7c15U);
    const std::int64_t begin = piece * kPiece;
    const std::int64_t end = std::min(count, begin + kPiece);
    for (std::int64_t i = begin; i < end; ++i) {
      values_[static_cast<std::size_t>(i)] =
          to_bfloat16(spread.center + spread.width * rng.symmetric());
    }
  });
  view.data = reinterpret_cast<const std::byte*>(values_.data());
  return view;
}

}  // namespace kakeya
