// Where packed weights are kept between runs (docs/weights-cache.md).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "model/packed_weights.h"
#include "model/tensor_source.h"

namespace kakeya {

// The files of one engine: of its model, its drafter, its projection. One thread at a time; it must
// outlive the weights that are loaded with it.
class WeightsCache {
 public:
  // EngineOptions::weights_cache and weights_cache_trust.
  WeightsCache(std::string folder, bool trust) : folder_(std::move(folder)), trust_(trust) {}

  bool is_wanted() const { return !folder_.empty(); }

  // The file of the model, or drafter, at `path`. Errors: kInvalidArgument for a backend that packs
  // nothing; those of PackedWeights::open().
  Result<PackedWeights*> open(const std::string& path,
                              const TensorSource& source,
                              const Backend& backend,
                              Compute compute,
                              std::span<const PackedEntry> entries);

 private:
  std::string folder_;
  bool trust_;
  std::vector<std::unique_ptr<PackedWeights>> files_;
};

// The name says the model and the layout; models of one name in different folders get different
// ones.
std::string weights_cache_path(const std::string& folder,
                               const std::string& model,
                               const std::string& layout);

}  // namespace kakeya
