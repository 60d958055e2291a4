// Runs texts through a model and takes down what its keys, queries and values are like: the
// statistics from which calibrated codes of the KV cache follow.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "convert/tensor_encoder.h"
#include "formats/kv_statistics.h"
#include "kakeya/options.h"
#include "kakeya/status.h"
#include "kakeya/types.h"

namespace kakeya {

// `windows`: token ids, each run from nothing; none is empty. Positions below the default sink are
// left out: they stay exact, and are unlike all others. Of `engine` what loads a model counts;
// progress: tokens run, and in all. made_from stays empty. Errors: as Engine::open;
// kInvalidArgument for ids outside the vocabulary or windows of too few tokens; those of
// `progress`.
Result<KvStatistics> measure_kv_statistics(const EngineOptions& engine,
                                           std::span<const std::vector<TokenId>> windows,
                                           const ProgressCallback& progress);

}  // namespace kakeya
