#include "runtime/memory_ladder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

namespace kakeya {
namespace {

// A context that nobody asked for is not made shorter than this.
constexpr std::int64_t kShortestContext = 1024;

// How much is given up of keys and values; each step includes the ones before.
struct Level {
  std::int64_t context;
  KvType type = KvType::kAuto;
  const char* type_name = "";
  std::int64_t window = 0;
};

// Room for the rows of a pass, and for drafts: costs time, never a bit of the output.
struct Room {
  std::int64_t max_rows;
  bool drafting;
};
constexpr Room kRooms[] = {{1 << 30, true}, {128, true}, {32, true}, {32, false}};

std::vector<Level> levels(const SessionOptions& asked,
                          std::int64_t default_context,
                          bool calibrated) {
  std::vector<Level> levels;
  std::int64_t context = asked.context > 0 ? asked.context : default_context;
  levels.push_back({.context = context});
  while (asked.context == 0 && context / 2 >= kShortestContext) {
    context /= 2;
    levels.push_back({.context = context});
  }
  levels.push_back({.context = context, .type = KvType::kInt8, .type_name = "int8"});
  if (calibrated) {
    levels.push_back({.context = context, .type = calibrated_kv(4, 4), .type_name = "k4v4"});
    levels.push_back({.context = context, .type = calibrated_kv(3, 3), .type_name = "k3v3"});
  }
  // Whoever asks skips e8 where the model's heads do not allow it.
  for (const std::int64_t window : {0, 1024, 256}) {
    if (window != 0 && asked.context != 0) break;  // who asks for a context wants all of it
    levels.push_back({context, KvType::kE8, "e8", window});
    if (window != 0) levels.push_back({context, KvType::kInt8, "int8", window});
  }
  return levels;
}

MemoryRung apply(const SessionOptions& asked, const Level& level, const Room& room) {
  MemoryRung rung{.session = asked, .says = {}};
  SessionOptions& session = rung.session;
  std::vector<std::string> changes;
  session.context = level.context;
  bool coded = false;
  for (KvType* type : {&session.kv_full, &session.kv_sliding, &session.kv_drafter}) {
    if (*type != KvType::kAuto || level.type == KvType::kAuto) continue;
    const bool has_codes = type == &session.kv_full || !is_calibrated(level.type);
    *type = has_codes ? level.type : KvType::kInt8;
    coded = true;
  }
  if (coded) changes.push_back(fmt::format("KV cache in {}", level.type_name));
  const bool may_drop = asked.window == 0 && asked.evicted_full == Evicted::kKeep;
  if (level.window != 0 && may_drop) {
    session.window = level.window;
    session.evicted_full = Evicted::kDrop;
    changes.push_back(fmt::format("full layers keep {} + {} rows", asked.sink, level.window));
  }
  if (room.max_rows < asked.max_rows) {
    session.max_rows = room.max_rows;
    changes.push_back(fmt::format("prompts in passes of {} tokens", room.max_rows));
  }
  if (asked.drafting && !room.drafting) {
    session.drafting = false;
    changes.push_back("no drafts");
  }
  rung.says = fmt::format("{}", fmt::join(changes, ", "));
  return rung;
}

}  // namespace

std::vector<MemoryRung> memory_ladder(const SessionOptions& asked,
                                      std::int64_t default_context,
                                      bool calibrated) {
  std::vector<MemoryRung> rungs;
  for (const Level& level : levels(asked, default_context, calibrated)) {
    for (const Room& room : kRooms) rungs.push_back(apply(asked, level, room));
  }
  return rungs;
}

}  // namespace kakeya
