// Random weights of given shapes, for benchmarks: the cost of a forward pass does not
// depend on what the weights say.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "formats/model_tensors.h"
#include "model/tensor_source.h"

namespace kakeya {

// The formats that random weights can have.
std::span<const QuantizedFormat> random_formats();

// bf16 tensors, uniform with the spread of trained ones: matrices 0.02, norms and scales around 1.
// A tensor is made when it is asked for and replaced by the next one.
class RandomSource final : public TensorSource {
 public:
  // The required ones of `specs`. With a format, one of random_formats(), the matrices have it that
  // published files quantise, as far as their rows are whole blocks: all but routers.
  RandomSource(std::vector<TensorSpec> specs,
               std::uint64_t seed,
               ThreadPool& pool,
               std::optional<QuantizedFormat> format = std::nullopt);

  Result<TensorView> tensor(std::string_view name) override;
  Result<TensorView> describe(std::string_view name) const override;
  bool has(std::string_view name) const override { return specs_.contains(name); }
  bool is_persistent(std::string_view /*name*/) const override { return false; }

 private:
  std::map<std::string, TensorSpec, std::less<>> specs_;
  std::uint64_t seed_;
  ThreadPool& pool_;
  std::optional<QuantizedFormat> format_;
  std::vector<std::byte> values_;
};

}  // namespace kakeya
