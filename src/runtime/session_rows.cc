#include "runtime/session_rows.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "base/check.h"
#include "kv/kv_segment.h"

namespace kakeya {
namespace {

constexpr std::size_t kNumCaches = SessionRows::kNumCaches;

std::array<KvCache*, kNumCaches> caches_of(const SessionParts& parts) {
  return {&parts.timeline->cache(), parts.dflash == nullptr ? nullptr : &parts.dflash->context()};
}

std::array<KvExtent, kNumCaches> extents_of(const SessionExtent& extent) {
  return {extent.target, extent.drafter.context};
}

// Bytes of each cache's rows, and of the taps behind them.
std::array<std::uint64_t, kNumCaches + 1> sizes_of(const SessionParts& parts,
                                                   const SessionRows& rows) {
  const auto caches = caches_of(parts);
  const auto extents = extents_of(rows.extent);
  std::array<std::uint64_t, kNumCaches + 1> sizes{};
  for (std::size_t i = 0; i < kNumCaches; ++i) {
    if (caches[i] == nullptr) continue;
    sizes[i] = segment_bytes(caches[i]->spec(), {rows.begin[i], extents[i]});
  }
  if (parts.dflash != nullptr) {
    sizes.back() = parts.dflash->taps(rows.extent.drafter.waiting).size;
  }
  return sizes;
}

// The places of the caches' rows in the memory.
std::array<std::span<std::byte>, kNumCaches + 1> pieces_of(const SessionParts& parts,
                                                           const SessionRows& rows) {
  std::array<std::span<std::byte>, kNumCaches + 1> pieces;
  std::byte* next = rows.memory.data();
  const auto sizes = sizes_of(parts, rows);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    pieces[i] = {next, static_cast<std::size_t>(sizes[i])};
    next += sizes[i];
  }
  return pieces;
}

// Caches of one spec cut the same rows into the same pieces.
void copy_cache(const KvCache& from, const KvCache& to, const KvExtent& extent) {
  for (std::int64_t layer = 0; layer < std::ssize(from.spec().layers); ++layer) {
    for (const bool keys : {true, false}) {
      const auto sources = from.held_rows(layer, keys, extent);
      const auto targets = to.held_rows(layer, keys, extent);
      KAKEYA_CHECK(sources.size() == targets.size());
      for (std::size_t i = 0; i < sources.size(); ++i) {
        KAKEYA_CHECK(sources[i].size == targets[i].size);
        from.space().copy(sources[i].data, targets[i].data, sources[i].size);
      }
    }
  }
}

// Gives `extent` the larger `written` of both: fewer rows are held then than by either alone.
KvExtent joined(const KvExtent& extent, const KvExtent& parent) {
  if (extent.length == 0) return extent;
  return {extent.length, std::max(extent.written, parent.written)};
}

}  // namespace

SessionRows plan_rows(const SessionParts& parts,
                      const SessionExtent& extent,
                      const SessionRows* parent,
                      Position common) {
  SessionRows rows{.extent = extent, .begin = {}, .parent = nullptr, .memory = {}};
  if (parent == nullptr) return rows;
  const auto before = shortened(parts, parent->extent, common);
  KAKEYA_CHECK(before.has_value());
  SessionExtent all = extent;
  all.target = joined(extent.target, before->target);
  all.drafter.context = joined(extent.drafter.context, before->drafter.context);
  // A drafter's context may lag so far behind the parent's that their rows do not meet.
  if (!shortened(parts, all, all.target.length)) return rows;
  rows.extent = all;
  rows.parent = parent;
  rows.begin = {common, before->drafter.context.length};
  return rows;
}

std::uint64_t rows_bytes(const SessionParts& parts, const SessionRows& rows) {
  const auto sizes = sizes_of(parts, rows);
  return std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
}

void save_rows(const SessionParts& parts, const SessionRows& rows) {
  const auto caches = caches_of(parts);
  const auto extents = extents_of(rows.extent);
  const auto pieces = pieces_of(parts, rows);
  for (std::size_t i = 0; i < kNumCaches; ++i) {
    if (caches[i] != nullptr) save_rows(*caches[i], {rows.begin[i], extents[i]}, pieces[i]);
  }
  if (parts.dflash == nullptr) return;
  parts.dflash->context().space().download(parts.dflash->taps(rows.extent.drafter.waiting).data,
                                           pieces.back());
}

void copy_rows(const SessionParts& from, const SessionParts& to, const SessionExtent& extent) {
  const auto sources = caches_of(from);
  const auto targets = caches_of(to);
  const auto extents = extents_of(extent);
  for (std::size_t i = 0; i < kNumCaches; ++i) {
    if (sources[i] != nullptr) copy_cache(*sources[i], *targets[i], extents[i]);
  }
  if (from.dflash == nullptr) return;
  const KvPiece taps = from.dflash->taps(extent.drafter.waiting);
  from.dflash->context().space().copy(taps.data, to.dflash->taps(extent.drafter.waiting).data,
                                      taps.size);
}

void load_rows(const SessionParts& parts, const SessionRows& rows, const SessionExtent& wanted) {
  const auto caches = caches_of(parts);
  const auto to = extents_of(wanted);
  for (std::size_t i = 0; i < kNumCaches; ++i) {
    if (caches[i] == nullptr) continue;
    Position end = to[i].length;
    std::uint64_t bytes = 0;
    for (const SessionRows* from = &rows; from != nullptr; from = from->parent) {
      const KvSegment segment{from->begin[i], extents_of(from->extent)[i]};
      bytes += load_rows(pieces_of(parts, *from)[i], segment, end, to[i], *caches[i]);
      end = std::min(end, from->begin[i]);
    }
    KAKEYA_CHECK(bytes == segment_bytes(caches[i]->spec(), {0, to[i]}));
  }
  if (parts.dflash == nullptr) return;
  const KvPiece taps = parts.dflash->taps(wanted.drafter.waiting);
  parts.dflash->context().space().upload(pieces_of(parts, rows).back().first(taps.size), taps.data);
}

}  // namespace kakeya
