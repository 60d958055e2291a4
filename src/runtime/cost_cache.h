// Measured costs of rounds on disk, so that a second start need not measure. A cache: whatever is
// wrong with it only means that costs are measured again.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "decode/length_policy.h"
#include "kakeya/status.h"

namespace kakeya {

// What costs depend on, in words (valid UTF-8). All must be the same.
struct CostKey {
  std::string binary;
  std::string model;
  std::string machine;
};

// What store_costs() wrote for the same key; nothing if there is no such file, or it is unreadable,
// damaged, of another key or version, or holds what cannot be costs.
std::optional<RoundCosts> load_costs(const std::string& folder, const CostKey& key);

// Makes the folder if need be. Replaces what was stored in one step: readers and other writers, of
// other processes too, see a whole file or none.
// Errors: kInvalidArgument for costs or a key that load_costs() would refuse, kUnavailable if
// writing fails.
Status store_costs(const std::string& folder, const CostKey& key, const RoundCosts& costs);

// Where a user's costs are kept, by the values of the variables XDG_CACHE_HOME and HOME (XDG Base
// Directory Specification: a path that is not absolute counts as unset); empty: there is no place.
std::string default_cache_folder(std::string_view xdg_cache_home, std::string_view home);

// The machine as far as costs depend on it: the CPU's name, threads, the backend.
std::string machine_text(int num_threads, std::string_view backend_name);

// This program: the library's version with the size and time of the program's file.
std::string binary_text();

}  // namespace kakeya
