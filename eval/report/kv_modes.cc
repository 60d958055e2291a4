#include "eval/report/kv_modes.h"

#include <algorithm>
#include <set>
#include <utility>

#include "kakeya/status.h"

namespace kakeya::eval {
namespace {

const KvMode* find_mode(const std::string& name, const std::vector<KvMode>& table) {
  const auto found = std::ranges::find(table, name, &KvMode::name);
  return found == table.end() ? nullptr : &*found;
}

SessionOptions stored(KvType full, KvType sliding) {
  return {.kv_full = full, .kv_sliding = sliding, .drafting = false};
}

// Full layers in calibrated codes, of which the last `exact` rows are exact.
SessionOptions calibrated(int key_bits, int value_bits, std::int64_t exact = 64) {
  return {.kv_full = calibrated_kv(key_bits, value_bits), .kv_exact = exact, .drafting = false};
}

SessionOptions dropped(std::int64_t sink, std::int64_t window, Evicted full, Evicted sliding) {
  return {.sink = sink,
          .window = window,
          .evicted_full = full,
          .evicted_sliding = sliding,
          .drafting = false};
}

// Each way to restore has the same rows dropped for control.
void add_restoring_modes(std::vector<KvMode>& modes) {
  using enum Evicted;
  for (const std::string features : {"context", "aux"}) {
    modes.push_back({.name = "restore-sliding-" + features,
                     .session = dropped(4, 64, kKeep, kRestore),
                     .projection = features,
                     .control = "drop-sliding"});
    modes.push_back({.name = "restore-full-" + features,
                     .session = dropped(4, 64, kRestore, kKeep),
                     .projection = features,
                     .control = "drop-full"});
    modes.push_back({.name = "restore-" + features,
                     .session = dropped(4, 64, kRestore, kRestore),
                     .projection = features,
                     .control = "drop"});
  }
  // The projection of kakeya-train codes, for full layers alone.
  modes.push_back({.name = "restore-full-codes",
                   .session = dropped(4, 64, kRestore, kKeep),
                   .projection = "codes",
                   .control = "drop-full"});
  modes.push_back({.name = "recompute",
                   .session = dropped(4, 64, kRestore, kRestore),
                   .comparison = {.recompute = true},
                   .projection = "aux",
                   .control = "restore-aux",
                   .slow = true});
}

}  // namespace

SessionOptions kv_reference() {
  return {.drafting = false};
}

const std::vector<KvMode>& kv_modes() {
  static const std::vector<KvMode> kModes = [] {
    using enum KvType;
    using enum Evicted;
    std::vector<KvMode> modes{
        {.name = std::string(kExactMode), .session = kv_reference()},
        {.name = "pairs", .session = stored(kAuto, kAuto), .comparison = {.kv_pairs = true}},
        {.name = "f32", .session = stored(kF32, kF32)},
        {.name = "bf16", .session = stored(kBf16, kBf16)},
        {.name = "int8-full", .session = stored(kInt8, kAuto)},
        {.name = "int8", .session = stored(kInt8, kInt8)},
        {.name = "e8", .session = stored(kE8, kE8)},
        {.name = "k6v6", .session = calibrated(6, 6)},
        {.name = "k5v5", .session = calibrated(5, 5)},
        {.name = "k4v4", .session = calibrated(4, 4)},
        {.name = "k4v4-last", .session = calibrated(4, 4, 1)},
        {.name = "k3v3", .session = calibrated(3, 3)},
        {.name = "k2v2", .session = calibrated(2, 2)},
        {.name = "window-64", .session = dropped(0, 64, kKeep, kDrop)},
        {.name = "drop-full", .session = dropped(4, 64, kDrop, kKeep)},
        {.name = "drop-sliding", .session = dropped(4, 64, kKeep, kDrop)},
        {.name = "drop", .session = dropped(4, 64, kDrop, kDrop)},
        {.name = "drop-512", .session = dropped(4, 512, kDrop, kKeep)}};
    add_restoring_modes(modes);
    return modes;
  }();
  return kModes;
}

const std::vector<KvMode>& former_kv_modes() {
  static const std::vector<KvMode> kModes = [] {
    std::vector<KvMode> modes = kv_modes();
    std::ranges::find(modes, "e8", &KvMode::name)->control = "int4r";
    for (const std::string_view name : kRemovedKvTypes) {
      modes.push_back({.name = std::string(name), .control = name == "d4" ? "int4r" : ""});
    }
    modes.push_back({.name = "int4r-full"});
    for (const char* name : {"blend-0.25", "blend-0.5", "blend-0.75", "identity"}) {
      modes.push_back({.name = name, .projection = "aux", .control = "drop"});
    }
    for (const std::string rows : {"-sliding", "-full", ""}) {
      modes.push_back(
          {.name = "restore" + rows + "-token", .projection = "token", .control = "drop" + rows});
    }
    return modes;
  }();
  return kModes;
}

std::string refused_kv_mode(const std::string& name) {
  if (find_mode(name, kv_modes()) != nullptr) return "";
  if (const KvMode* former = find_mode(name, former_kv_modes()); former != nullptr) {
    if (!former->projection.empty()) return name + " was removed (docs/kv-results.md says why)";
    return name + " " + std::string(kRemovedKvTypeRefusal);
  }
  std::string refusal = "there is no mode '" + name + "': expected one of";
  for (const KvMode& mode : kv_modes()) refusal += " " + mode.name;
  return refusal;
}

Result<std::vector<KvMode>> choose_kv_modes(const std::vector<std::string>& names,
                                            const std::vector<KvMode>& table) {
  std::set<std::string> chosen;
  for (const std::string& name : names) {
    const KvMode* mode = find_mode(name, table);
    if (mode == nullptr)
      return Unexpected(Error(StatusCode::kInvalidArgument, refused_kv_mode(name)));
    chosen.insert(name);
    if (!mode->control.empty()) chosen.insert(mode->control);
  }
  std::vector<KvMode> modes;
  for (const KvMode& mode : table) {
    if (names.empty() ? !mode.slow : chosen.contains(mode.name)) modes.push_back(mode);
  }
  return modes;
}

}  // namespace kakeya::eval
