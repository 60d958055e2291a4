// kv-codes.safetensors: what was learned of a model's keys and values, by layer and KV head, from
// which calibrated codes follow (tensor/calibrated_code.h). For each layer L that has a KV cache,
// F32 [K, E]:
//
//   layers.L.key_mean, layers.L.key_variance   keys before rotation
//   layers.L.key_cost                          what a squared error of an element of a key costs:
//                                              its mean change of the squared score
//   layers.L.value_mean                        not where one vector serves as key and value:
//   key_...
//                                              are that vector's, before the keys' norm
//
// The metadata say of which weights, as Engine::model_fingerprint() has them, and from what.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/model_config.h"
#include "kakeya/status.h"

namespace kakeya {

struct KvLayerStatistics {
  std::int64_t num_kv_heads = 0;  // K
  std::int64_t head_dim = 0;      // E
  bool is_sliding = false;        // as the model's configuration says
  // [K, E] each.
  std::vector<float> key_mean = {};
  std::vector<float> key_variance = {};
  std::vector<float> key_cost = {};
  std::vector<float> value_mean = {};  // empty: of one vector
};

struct KvStatistics {
  std::string weights = {};    // Engine::model_fingerprint()
  std::string made_from = {};  // for people
  std::int64_t tokens = 0;
  std::vector<KvLayerStatistics> layers = {};  // that have a cache, in order
  std::uint64_t fingerprint = 0;               // of the numbers; set by load_kv_statistics()
};

// Where a model's statistics are looked for: in its folder, or beside its GGUF file.
std::string kv_statistics_path(const std::string& model);

// Errors: as SafetensorsFile::open; kInvalidArgument for a file of another format, a tensor that is
// missing, not wanted or of another shape than the model has, or numbers that are not finite or
// negative where they may not be.
Result<KvStatistics> load_kv_statistics(const std::string& path, const ModelConfig& config);

// The file appears whole or not at all. Errors: kUnavailable.
Status save_kv_statistics(const std::string& path,
                          const ModelConfig& config,
                          const KvStatistics& statistics);

}  // namespace kakeya
