// Receives layer outputs of the target (taps) from the passes that a Timeline runs anyway: prefill,
// plain steps and verification. Those of committed tokens are kept.
#pragma once

#include <cstdint>
#include <span>

#include "backend/rows.h"
#include "kakeya/status.h"
#include "kakeya/types.h"

namespace kakeya {

class TapSink {
 public:
  virtual ~TapSink() = default;

  // The layers whose outputs are wanted, in order (see kTapEmbedding and following).
  virtual std::span<const std::int64_t> taps() const = 0;

  // Makes room for `rows` rows behind those that are kept, within a turn of the workspace. Errors:
  // kResourceExhausted for a fork, which allocates when it is first needed; nothing changes then.
  virtual Status reserve_taps(std::int64_t rows) = 0;
  // Keeps these rows [n, num_taps * D], for which there is room.
  virtual void commit_taps(ConstRows rows) = 0;
  // A part of a prompt is done: a moment to work on what is kept. Errors: as reserve_taps.
  virtual Status finish_taps() = 0;

  // Forgets positions from `length` on. The error, if any, comes from the check; then nothing may
  // be truncated.
  virtual Status check_truncate(Position length) const = 0;
  virtual void truncate(Position length) = 0;
};

}  // namespace kakeya
