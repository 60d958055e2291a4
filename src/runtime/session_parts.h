// The parts that a session's stream depends on, and how far they have come: they are saved, on disk
// or in the prompt cache, and restored from there.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "decode/dflash_source.h"
#include "decode/timeline.h"
#include "kakeya/status.h"

namespace kakeya {

// The parts of a session; all but the timeline may be missing.
struct SessionParts {
  Timeline* timeline = nullptr;
  DflashSource* dflash = nullptr;
};

// The rows that the parts hold; zeros for those that are missing.
struct SessionExtent {
  KvExtent target;
  DflashSource::State drafter;

  bool operator==(const SessionExtent&) const = default;
};

// The extent of a session after truncating it to `length` tokens run. Errors: as
// Timeline::truncate.
Result<SessionExtent> session_extent(const SessionParts& parts, Position length);

// The extent at `length` tokens of a session of the same options that was saved with `extent`;
// nothing if a ring does not reach back so far.
std::optional<SessionExtent> shortened(const SessionParts& parts,
                                       const SessionExtent& extent,
                                       Position length);

// Makes the rows of `extent` writable, with `length` tokens run. Errors: kDataLoss for an extent
// that no session of these options has, kResourceExhausted for memory that a fork needs; the
// session goes on as before then.
Status prepare_session(const SessionParts& parts, const SessionExtent& extent, Position length);

// Takes `extent`, which was prepared and whose rows were filled, and `tokens`, of which at least
// one must be pending, for the session's own.
void set_session(const SessionParts& parts,
                 std::span<const TokenId> tokens,
                 const SessionExtent& extent);

}  // namespace kakeya
