#include "model/weight_loader.h"

#include <algorithm>

#include "base/status.h"

namespace kakeya {

void WeightLoader::fail(const Error& error) {
  if (!error_) error_ = error;
}

void WeightLoader::advance(std::uint64_t bytes) {
  bytes_done_ += bytes;
  if (progress_) progress_(bytes_done_);
}

Status WeightLoader::status() const {
  if (error_) return Unexpected(*error_);
  return {};
}

std::optional<TensorView> WeightLoader::fetch(const std::string& name) {
  if (error_) return std::nullopt;
  auto view = source_.tensor(name);
  if (!view) {
    fail(view.error());
    return std::nullopt;
  }
  return std::move(view).value();
}

std::unique_ptr<Matrix> WeightLoader::load(const TensorView& view, Compute compute) {
  auto matrix = backend_.load_matrix(view, compute, budget_);
  if (!matrix) {
    fail(matrix.error().with_context(view.name));
    return nullptr;
  }
  advance(view.bytes());
  return std::move(matrix).value();
}

std::unique_ptr<Matrix> WeightLoader::matrix(const std::string& name, Compute compute) {
  const auto view = fetch(name);
  return view ? load(*view, compute) : nullptr;
}

std::unique_ptr<Matrix> WeightLoader::expert_rows(const std::string& name,
                                                  std::int64_t row,
                                                  std::int64_t rows,
                                                  Compute compute) {
  auto view = fetch(name);
  if (!view) return nullptr;
  const std::int64_t width = view->shape[2];
  view->stack_stride = view->shape[1] * width;
  view->data += static_cast<std::size_t>(row * width) * dtype_bytes(view->dtype);
  view->shape[1] = rows;
  return load(*view, compute);
}

std::unique_ptr<Matrix> WeightLoader::table(const std::string& name, Compute compute) {
  const auto view = fetch(name);
  if (!view) return nullptr;
  if (!source_.is_persistent()) return load(*view, compute);
  auto table = backend_.map_table(*view);
  if (!table) {
    fail(table.error().with_context(name));
    return nullptr;
  }
  advance(view->bytes());
  return std::move(table).value();
}

WeightVector WeightLoader::vector(const std::string& name, float factor) {
  const auto view = fetch(name);
  if (!view) return {};
  auto values = to_f32(*view);
  if (!values) {
    fail(values.error());
    return {};
  }
  auto buffer = budget_.allocate(MemoryClass::kWeights, values->size() * sizeof(float));
  if (!buffer) {
    fail(buffer.error().with_context(name));
    return {};
  }
  std::transform(values->begin(), values->end(), buffer->as<float>(),
                 [&](float value) { return value * factor; });
  advance(view->bytes());
  return WeightVector(std::move(buffer).value());
}

float WeightLoader::scalar(const std::string& name) {
  const auto view = fetch(name);
  if (!view) return 0.0F;
  const auto values = to_f32(*view);
  if (!values) {
    fail(values.error());
    return 0.0F;
  }
  advance(view->bytes());
  return values->front();
}

}  // namespace kakeya
