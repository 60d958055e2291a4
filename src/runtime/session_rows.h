// A copy of what a session has run, in one piece of memory. Copies of texts with a common beginning
// form chains: each has the rows behind those of its parent, so what is common is stored once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/memory_budget.h"
#include "kakeya/types.h"
#include "runtime/session_parts.h"

namespace kakeya {

struct SessionRows {
  // The target's, the drafter's context.
  static constexpr std::size_t kNumCaches = 2;

  SessionExtent extent;                      // of a session that has run this
  std::array<Position, kNumCaches> begin{};  // first positions stored here and not by the parent
  const SessionRows* parent = nullptr;       // must outlive this
  Buffer memory;                             // the rows of each cache, then all waiting taps
};

// The copy to be made of a session with this extent, without memory, whose first `common` tokens
// are also the first ones of `parent`; there a session must be able to start (shortened()).
// `parent` may be null.
SessionRows plan_rows(const SessionParts& parts,
                      const SessionExtent& extent,
                      const SessionRows* parent,
                      Position common);

// The bytes of rows.memory.
std::uint64_t rows_bytes(const SessionParts& parts, const SessionRows& rows);

// Copies the session's rows, which must be those of rows.extent, to rows.memory of rows_bytes().
void save_rows(const SessionParts& parts, const SessionRows& rows);

// Copies the rows of `extent` from one session to another of the same options that was prepared for
// it.
void copy_rows(const SessionParts& from, const SessionParts& to, const SessionExtent& extent);

// Copies rows to a session that was prepared for `wanted`, which is shortened() from rows.extent.
void load_rows(const SessionParts& parts, const SessionRows& rows, const SessionExtent& wanted);

}  // namespace kakeya
