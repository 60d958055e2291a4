#include "model/restore/projection.h"

#include <fmt/format.h>

#include "base/status.h"

namespace kakeya {

Result<std::unique_ptr<Projection>> Projection::load(const ProjectionConfig& config,
                                                     WeightLoader& loader,
                                                     Compute compute) {
  std::unique_ptr<Projection> projection(new Projection(config));
  if (config.one_code) {
    projection->key_encoder_ = loader.matrix("encoder.weight", compute);
  } else {
    projection->key_encoder_ = loader.matrix("encoder_k.weight", compute);
    projection->value_encoder_ = loader.matrix("encoder_v.weight", compute);
  }
  for (std::int64_t l = 0; l < config.num_layers(); ++l) {
    projection->key_decoders_.push_back(loader.transposed(fmt::format("decoders_k.{}.weight", l)));
    projection->value_decoders_.push_back(
        loader.transposed(fmt::format("decoders_v.{}.weight", l)));
  }
  KAKEYA_TRY(loader.status());
  projection->fingerprint_ = loader.fingerprint();
  return projection;
}

}  // namespace kakeya
