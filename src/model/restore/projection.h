// The weights of a projection: features of a position to a low-rank code, and for each layer of the
// target the code to raw keys and values. What codes are for: docs/memory.md.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "formats/projection_config.h"
#include "model/weight_loader.h"

namespace kakeya {

class Projection {
 public:
  // Loads all weights. Errors: those of the loader.
  static Result<std::unique_ptr<Projection>> load(const ProjectionConfig& config,
                                                  WeightLoader& loader,
                                                  Compute compute);

  const ProjectionConfig& config() const { return config_; }
  std::int64_t rank() const { return config_.rank; }
  // The fingerprint of the weights that were loaded, as WeightLoader::fingerprint.
  std::uint64_t fingerprint() const { return fingerprint_; }

  // codes [T, rank] = features [T, input_width] through the encoder. With one code it is
  // encode_keys() that makes it.
  void encode_keys(ConstRows features, Executor& executor, Rows codes) const {
    executor.matmul(features, *key_encoder_, codes);
  }
  void encode_values(ConstRows features, Executor& executor, Rows codes) const {
    executor.matmul(features, *value_encoder_, codes);
  }

  // The decoder of keys of the target's layer `layer`: [rank, K * E], the transpose of the stored
  // tensor, so that an expansion reads rows.
  DevicePointer<const float> key_decoder(std::int64_t layer) const {
    return decoder(key_decoders_, layer);
  }
  DevicePointer<const float> value_decoder(std::int64_t layer) const {
    return decoder(value_decoders_, layer);
  }

 private:
  explicit Projection(ProjectionConfig config) : config_(std::move(config)) {}

  static DevicePointer<const float> decoder(const std::vector<WeightVector>& decoders,
                                            std::int64_t layer) {
    return decoders[static_cast<std::size_t>(layer)].data();
  }

  ProjectionConfig config_;
  std::uint64_t fingerprint_ = 0;
  std::unique_ptr<Matrix> key_encoder_;    // [rank, input_width]
  std::unique_ptr<Matrix> value_encoder_;  // the same; null with one code
  std::vector<WeightVector> key_decoders_;
  std::vector<WeightVector> value_decoders_;
};

}  // namespace kakeya
