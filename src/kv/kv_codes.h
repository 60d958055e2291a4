// The calibrated codes of a model's keys and values, for one number of bits, made from what was
// learned of them (formats/kv_statistics.h).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/memory_budget.h"
#include "formats/kv_statistics.h"
#include "kakeya/status.h"
#include "tensor/calibrated_code.h"

namespace kakeya {

// Bits of an element of a key and of a value. Where one vector is stored for both it has the keys'.
struct KvBits {
  int keys = 0;
  int values = 0;

  bool operator==(const KvBits&) const = default;
};

// Immutable, so any thread may use it.
class KvCodes {
 public:
  // Codes [K] of keys, or of one vector, and of values, which one vector has not; and their tables.
  struct Layer {
    std::vector<CalibratedCode> keys;
    std::vector<CalibratedCode> values;
    std::vector<CodeView> key_views;
    std::vector<CodeView> value_views;
  };

  // Codes for all full layers of the statistics. Errors: kResourceExhausted.
  static Result<std::shared_ptr<const KvCodes>> create(const KvStatistics& statistics,
                                                       KvBits bits,
                                                       MemoryBudget& budget);

  // The bytes that create() charges.
  static std::uint64_t bytes(const KvStatistics& statistics);

  // The codes of the cache's layer `index`.
  const Layer& layer(std::int64_t index) const { return layers_[static_cast<std::size_t>(index)]; }

 private:
  Buffer tables_;  // of all codes
  std::vector<Layer> layers_;
};

}  // namespace kakeya
