// Where the rows of a chunk and of the next one lie, for attention that asks for rows ahead.
// Included after attention.h.
#pragma once

#include "backend/cpu/kernels.h"
#include "backend/cpu/units/attention.h"

namespace kakeya::cpu::KAKEYA_CPU_UNIT {

inline constexpr Index kStep = 32;  // keys, or elements, that chunks are worked on by
inline constexpr Index kMaxSteps = kMaxHeadDim / kStep;

// Addresses of a chunk's keys and values, whole steps.
template <Index kKeys>
struct ChunkRows {
  Index chunk = -1;
  const std::byte* keys[kKeys];
  const std::byte* values[kKeys];
};

// The addresses for the chunk that is worked on and for the one after it, which can be prefetched
// meanwhile.
template <Index kKeys>
struct RowsAhead {
  ChunkRows<kKeys> chunks[2];
  ChunkRows<kKeys>* now;
  ChunkRows<kKeys>* next;
  Index next_rows;  // how many it has
};

// Fills `rows` with the addresses of keys [low, high) of a chunk; what is beside them in their
// first and last step is hidden, whatever it is.
template <Index kKeys>
inline void find_chunk(const Attention& attention,
                       const AttentionPart& part,
                       const SeenByPart& seen,
                       Index chunk,
                       Index low,
                       Index high,
                       ChunkRows<kKeys>& rows) {
  rows.chunk = chunk;
  find_rows(attention, part.kv_head, seen, chunk, low, high, rows.keys, rows.values);
  for (Index j = low / kStep * kStep; j < round_up(high, kStep); ++j) {
    if (j >= low && j < high) continue;
    const Index nearest = j < low ? low : high - 1;
    rows.keys[j] = rows.keys[nearest];
    rows.values[j] = rows.values[nearest];
  }
}

// Calls f.template operator()<2 kGroup or kGroup>(first) for all of `count`, a multiple of kGroup,
// two groups at once if possible.
template <int kGroup, typename F>
inline void for_groups(Index count, F&& f) {
  Index first = 0;
  for (; first + 2 * kGroup <= count; first += 2 * kGroup) f.template operator()<2 * kGroup>(first);
  if (first < count) f.template operator()<kGroup>(first);
}

// Calls attend(chunk, low, high), whole steps, for each chunk of kKeys keys of which something is
// seen, in order, with its rows and those of the next in `rows`.
template <Index kKeys, typename Attend>
inline void for_chunks_ahead(const Attention& attention,
                             const AttentionPart& part,
                             RowsAhead<kKeys>& rows,
                             Attend&& attend) {
  for_chunks<kKeys>(
      attention, part, [&](const SeenByPart& seen, Index chunk, Index low, Index high) {
        rows.now = &rows.chunks[chunk / kKeys % 2];
        rows.next = &rows.chunks[(chunk / kKeys + 1) % 2];
        if (rows.now->chunk != chunk) {
          find_chunk(attention, part, seen, chunk, low, high, *rows.now);
        }
        const Index after = seen.end - chunk - kKeys;
        rows.next_rows = after < 0 ? 0 : after < kKeys ? after : kKeys;
        if (rows.next_rows > 0) {
          find_chunk(attention, part, seen, chunk + kKeys, 0, rows.next_rows, *rows.next);
        }
        attend(chunk, low / kStep * kStep, round_up(high, kStep));
      });
}

}  // namespace kakeya::cpu::KAKEYA_CPU_UNIT
