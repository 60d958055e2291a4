// Receives layer outputs of the target (taps) from the passes that a Timeline runs anyway: prefill,
// plain steps and verification. Two-phase like the cache: a pass writes rows, those of committed
// tokens are kept.
#pragma once

#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "kakeya/status.h"
#include "kakeya/types.h"

namespace kakeya {

class TapSink {
 public:
  virtual ~TapSink() = default;

  // The layers whose outputs are wanted, in order (see kTapEmbedding and following).
  virtual std::span<const std::int64_t> taps() const = 0;

  // Room for `rows` rows [T, num_taps * D] behind the committed ones; replaces what was reserved.
  // Errors: kResourceExhausted for a fork, which allocates when it is first needed; nothing changes
  // then.
  virtual Result<Rows> reserve_taps(std::int64_t rows) = 0;
  // Keeps the first `rows` of the reservation; may be called again for the following ones.
  virtual void commit_taps(std::int64_t rows) = 0;
  // A part of a prompt is done: a moment to work on what is kept. Errors: as reserve_taps.
  virtual Status finish_taps() = 0;

  // Forgets positions from `length` on. The error, if any, comes from the check; then nothing may
  // be truncated.
  virtual Status check_truncate(Position length) const = 0;
  virtual void truncate(Position length) = 0;
};

}  // namespace kakeya
