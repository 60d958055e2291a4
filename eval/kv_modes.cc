#include "kv_modes.h"

#include <algorithm>
#include <set>

#include "base/status.h"

namespace kakeya::eval {
namespace {

const KvMode* find_mode(const std::string& name) {
  const std::vector<KvMode>& modes = kv_modes();
  const auto found = std::find_if(modes.begin(), modes.end(),
                                  [&](const KvMode& mode) { return mode.name == name; });
  return found == modes.end() ? nullptr : &*found;
}

}  // namespace

SessionOptions kv_reference() {
  return {.drafting = false};
}

const std::vector<KvMode>& kv_modes() {
  static const std::vector<KvMode> modes = {
      {.name = std::string(kExactMode), .session = kv_reference()},
      {.name = "f32",
       .session = {.kv_full = KvType::kF32, .kv_sliding = KvType::kF32, .drafting = false}},
      {.name = "bf16",
       .session = {.kv_full = KvType::kBf16, .kv_sliding = KvType::kBf16, .drafting = false}},
  };
  return modes;
}

Result<std::vector<KvMode>> choose_kv_modes(const std::vector<std::string>& names) {
  if (names.empty()) return kv_modes();
  std::set<std::string> chosen;
  for (const std::string& name : names) {
    const KvMode* mode = find_mode(name);
    if (mode == nullptr) return invalid_argument("there is no mode '{}'", name);
    chosen.insert(name);
    if (!mode->control.empty()) chosen.insert(mode->control);
  }
  std::vector<KvMode> modes;
  for (const KvMode& mode : kv_modes()) {
    if (chosen.contains(mode.name)) modes.push_back(mode);
  }
  return modes;
}

}  // namespace kakeya::eval
