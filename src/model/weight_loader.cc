#include "model/weight_loader.h"

#include <fmt/format.h>

#include "base/checksum.h"
#include "base/status.h"
#include "tensor/weight_hash.h"

namespace kakeya {

void WeightLoader::fail(const Error& error) {
  if (!error_) error_ = error;
}

void WeightLoader::advance(std::uint64_t source_bytes, std::uint64_t charged_bytes) {
  source_bytes_ += source_bytes;
  charged_bytes_ += charged_bytes;
  if (progress_) progress_(source_bytes_);
}

Status WeightLoader::status() const {
  if (error_) return Unexpected(*error_);
  return {};
}

void WeightLoader::add_to_fingerprint(std::uint64_t hash) {
  fingerprint_ = checksum(std::as_bytes(std::span(&hash, 1)), fingerprint_);
}

std::optional<TensorView> WeightLoader::fetch(const std::string& name, bool matrix) {
  if (error_) return std::nullopt;
  auto view = measuring() ? source_.describe(name) : source_.tensor(name);
  if (!view) {
    fail(view.error());
    return std::nullopt;
  }
  if (matrix || measuring()) return std::move(view).value();
  if (const Status finite = source_.check(name); !finite) {
    fail(finite.error());
    return std::nullopt;
  }
  add_to_fingerprint(hash_weight(*view));
  return std::move(view).value();
}

Result<std::unique_ptr<Matrix>> WeightLoader::load_or_map(const TensorView& view,
                                                          const PackedEntry& entry,
                                                          Compute compute) {
  if (mapping()) {
    KAKEYA_ASSIGN_OR_RETURN(const PackedMatrix packed, packed_->take(entry));
    add_to_fingerprint(packed.weight_hash);
    return backend_.map_matrix(view, compute, packed.bytes, *budget_);
  }
  KAKEYA_ASSIGN_OR_RETURN(auto matrix, backend_.load_matrix(view, compute, *budget_));
  const std::optional<std::uint64_t> known = matrix->weight_hash();
  const std::uint64_t hash = known ? *known : hash_weight(view);
  add_to_fingerprint(hash);
  if (packed_ != nullptr) KAKEYA_TRY(packed_->add(entry, {matrix->packed(), hash}));
  return matrix;
}

// The source names a number that is not finite, with its place in the checkpoint.
void WeightLoader::fail_to_load(const std::string& name, const Error& error) {
  if (error.code() == StatusCode::kDataLoss) {
    if (const Status finite = source_.check(name); !finite) return fail(finite.error());
  }
  fail(error.with_context(name));
}

std::unique_ptr<Matrix> WeightLoader::load(const std::string& name,
                                           RowRange range,
                                           Compute compute) {
  // The backend searches for NaN as it packs, and hashes; what was packed once was searched then.
  auto view = fetch(name, /*matrix=*/true);
  if (!view) return nullptr;
  if (range.count > 0) {
    view->stack_stride = view->shape[1] * view->shape[2];
    skip_rows(*view, range.begin);
    view->shape[1] = range.count;
  }
  const PackedEntry entry = {fmt::format("{} {}+{}", name, range.begin, range.count),
                             backend_.matrix_bytes(*view, compute)};
  std::unique_ptr<Matrix> matrix;
  if (!measuring()) {
    auto loaded = load_or_map(*view, entry, compute);
    if (!loaded) {
      fail_to_load(name, loaded.error());
      return nullptr;
    }
    matrix = std::move(loaded).value();
  }
  packed_entries_.push_back(entry);
  advance(view->bytes(), entry.bytes);
  return matrix;
}

std::unique_ptr<Matrix> WeightLoader::matrix(const std::string& name, Compute compute) {
  return load(name, {}, compute);
}

std::unique_ptr<Matrix> WeightLoader::expert_rows(const ExpertRows& wanted, Compute compute) {
  if (source_.has(wanted.own)) return matrix(wanted.own, compute);
  return load(wanted.fused, {wanted.row, wanted.rows}, compute);
}

std::unique_ptr<Matrix> WeightLoader::table(const std::string& name, Compute compute) {
  if (!source_.is_persistent(name)) return matrix(name, compute);
  if (error_) return nullptr;
  // Neither searched for NaN nor hashed: that would read all of it, when only one row a token is
  // ever needed.
  const auto view = source_.describe(name);
  if (!view) {
    fail(view.error());
    return nullptr;
  }
  std::unique_ptr<Matrix> table;
  if (!measuring()) {
    auto mapped = backend_.map_table(*view);
    if (!mapped) {
      fail(mapped.error().with_context(name));
      return nullptr;
    }
    table = std::move(mapped).value();
    add_to_fingerprint(hash_description(*view));
    tables_.push_back(*view);
  }
  advance(view->bytes(), 0);
  return table;
}

WeightVector WeightLoader::upload(const std::string& name, std::span<const float> values) {
  MemorySpace& space = backend_.memory();
  auto buffer = budget_->allocate(MemoryClass::kWeights, values.size_bytes(), space);
  if (!buffer) {
    fail(buffer.error().with_context(name));
    return {};
  }
  kakeya::upload(space, values, buffer->device<float>());
  return {std::move(buffer).value(), std::ssize(values)};
}

WeightVector WeightLoader::constant(std::span<const float> values) {
  if (error_) return {};
  advance(0, MemoryBudget::charged_bytes(values.size_bytes()));
  return measuring() ? WeightVector() : upload("constants", values);
}

template <typename Place>
WeightVector WeightLoader::copy_f32(const std::string& name,
                                    const TensorView& view,
                                    float factor,
                                    Place place) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(num_elements(view.shape)) * sizeof(float);
  WeightVector vector;
  if (!measuring()) {
    const auto values = to_f32(view);
    if (!values) {
      fail(values.error());
      return {};
    }
    std::vector<float> placed(values->size());
    for (std::size_t i = 0; i < values->size(); ++i) placed[place(i)] = (*values)[i] * factor;
    vector = upload(name, placed);
    if (error_) return {};
  }
  advance(view.bytes(), MemoryBudget::charged_bytes(bytes));
  return vector;
}

WeightVector WeightLoader::vector(const std::string& name, float factor) {
  const auto view = fetch(name);
  if (!view) return {};
  return copy_f32(name, *view, factor, [](std::size_t i) { return i; });
}

WeightVector WeightLoader::transposed(const std::string& name) {
  const auto view = fetch(name);
  if (!view) return {};
  const auto rows = static_cast<std::size_t>(view->shape[0]);
  const auto cols = static_cast<std::size_t>(view->shape[1]);
  return copy_f32(name, *view, 1.0F,
                  [rows, cols](std::size_t i) { return i % cols * rows + i / cols; });
}

float WeightLoader::scalar(const std::string& name) {
  const auto view = fetch(name);
  if (!view) return 0.0F;
  float value = 0.0F;
  if (!measuring()) {
    const auto values = to_f32(*view);
    if (!values) {
      fail(values.error());
      return 0.0F;
    }
    value = values->front();
  }
  advance(view->bytes(), 0);
  return value;
}

}  // namespace kakeya
