// Ways to keep keys and values, of each kind of storage at least one, for sessions of the demo
// model with the projection of context features.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "decode/comparison.h"
#include "kakeya/engine.h"
#include "runtime/engine_impl.h"
#include "thorough.h"

namespace kakeya::test {

struct SessionMode {
  const char* name;
  SessionOptions options;
  bool few = false;  // one of a few of different kinds, where all would take too long
  Comparison comparison = {};
};

inline std::unique_ptr<Session> create_session(Engine& engine, const SessionMode& mode) {
  return dynamic_cast<EngineImpl&>(engine)
      .create_session(mode.options, {.comparison = mode.comparison})
      .value();
}

// The demo model has windows of 128: with 64 rows in a chunk its rings wrap every 191 tokens, and
// with rows dropped behind 64 tokens every 131.
inline std::vector<SessionMode> session_modes() {
  const auto of = [](KvType full, KvType sliding) {
    return SessionOptions{.context = 1024,
                          .max_rows = 64,
                          .kv_full = full,
                          .kv_sliding = sliding,
                          .kv_drafter = full};
  };
  const auto dropping = [&](KvType full, KvType sliding, Evicted on_full, Evicted on_sliding) {
    SessionOptions options = of(full, sliding);
    options.window = 64;
    options.evicted_full = on_full;
    options.evicted_sliding = on_sliding;
    return options;
  };
  const auto coded = [&](int key_bits, int value_bits, std::int64_t exact) {
    SessionOptions options = of(KvType::kAuto, KvType::kInt8);
    options.kv_full = calibrated_kv(key_bits, value_bits);
    options.kv_exact = exact;
    return options;
  };
  return {{"auto", of(KvType::kAuto, KvType::kAuto), true},
          {"f32", of(KvType::kF32, KvType::kF32)},
          {"pairs", of(KvType::kAuto, KvType::kAuto), false, {.kv_pairs = true}},
          {"int8", of(KvType::kInt8, KvType::kInt8)},
          {"e8", of(KvType::kE8, KvType::kE8)},
          {"k4v4", coded(4, 4, 64), true},
          {"k3v2", coded(3, 2, 1)},
          {"drop", dropping(KvType::kAuto, KvType::kAuto, Evicted::kDrop, Evicted::kDrop), true},
          {"drop full", dropping(KvType::kInt8, KvType::kBf16, Evicted::kDrop, Evicted::kKeep)},
          {"drop sliding", dropping(KvType::kE8, KvType::kInt8, Evicted::kKeep, Evicted::kDrop)},
          {"restore", dropping(KvType::kInt8, KvType::kAuto, Evicted::kRestore, Evicted::kRestore),
           true},
          {"restore sliding",
           dropping(KvType::kAuto, KvType::kAuto, Evicted::kKeep, Evicted::kRestore)}};
}

// All of them in the long form. In the short one: the few, and of the others every second, from the
// one of this index on, so that two tests have all between them.
inline std::vector<SessionMode> session_modes_from(std::size_t first) {
  std::vector<SessionMode> modes;
  std::size_t other = first;
  for (const SessionMode& mode : session_modes()) {
    if (mode.few || is_run(other++, 2)) modes.push_back(mode);
  }
  return modes;
}

}  // namespace kakeya::test
