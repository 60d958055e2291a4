// The drafters with goldens, each with its target, on every backend.
#pragma once

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "model/test_model.h"

namespace kakeya::test {

struct DrafterCase {
  std::string drafter;
  std::string target;
  BackendChoice backend;

  // The name as GoogleTest takes it.
  std::string name() const {
    std::string name = drafter + "_" + backend.label();
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
  }
};

inline void PrintTo(const DrafterCase& c, std::ostream* out) {
  *out << c.drafter << " on " << c.backend.label();
}

// Those of DFlash 2 alone, or of both kinds.
inline std::vector<DrafterCase> drafter_cases(bool with_first_kind) {
  std::vector<DrafterCase> cases;
  for (const BackendChoice& backend : all_backends()) {
    if (with_first_kind) {
      cases.push_back({"dflash-gemma4", "gemma4-moe", backend});
      cases.push_back({"dflash-qwen3", "qwen3-untied", backend});
    }
    cases.push_back({"dflash2-gemma4", "gemma4-moe", backend});
    cases.push_back({"dflash2-qwen3", "qwen3-untied", backend});
    cases.push_back({"dflash2-qwen3-edge", "qwen3-untied", backend});
  }
  return cases;
}

}  // namespace kakeya::test
