// The ways of keeping keys and values that `kakeya eval kv` knows: one table.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "decode/comparison.h"
#include "kakeya/options.h"
#include "kakeya/status.h"

namespace kakeya::eval {

// One way of keeping keys and values.
struct KvMode {
  std::string name;
  // The evaluation sets context and max_rows itself.
  SessionOptions session = {};
  Comparison comparison = {};
  // The projection that rows are restored with: a folder of the model's projections/; empty: none
  // is needed.
  std::string projection = {};
  // The mode that shows what this one is worth, for example the same without its correction;
  // empty: none. It is measured and printed with this one.
  std::string control = {};
  // So slow that it is run only where it is named.
  bool slow = false;
};

// The mode that keeps them as the reference does, so that its divergence is exactly 0.
inline constexpr std::string_view kExactMode = "exact";

// The reference that every mode is compared with: keys and values as the compute mode keeps them.
SessionOptions kv_reference();

const std::vector<KvMode>& kv_modes();

// The table with modes of earlier versions, which kept reports name and no run has; of their
// sessions it says that they evict nothing.
const std::vector<KvMode>& former_kv_modes();

// The refusal of a name that is not in kv_modes(); empty for those that are.
std::string refused_kv_mode(const std::string& name);

// The modes of these names in the order of the table, with their controls; for no name all that
// are not slow.
// Errors: kInvalidArgument for a name that is not in the table.
Result<std::vector<KvMode>> choose_kv_modes(const std::vector<std::string>& names,
                                            const std::vector<KvMode>& table = kv_modes());

}  // namespace kakeya::eval
