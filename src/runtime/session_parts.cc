#include "runtime/session_parts.h"

#include <algorithm>

#include "base/status.h"

namespace kakeya {
namespace {

KvExtent shortened(const KvExtent& extent, Position length) {
  return length == 0 ? KvExtent{} : KvExtent{length, extent.written};
}

}  // namespace

Result<SessionExtent> session_extent(const SessionParts& parts, Position length) {
  SessionExtent extent;
  KAKEYA_ASSIGN_OR_RETURN(extent.target, parts.timeline->cache().extent(length));
  if (parts.dflash != nullptr) {
    KAKEYA_ASSIGN_OR_RETURN(extent.drafter, parts.dflash->state(length));
  }
  return extent;
}

std::optional<SessionExtent> shortened(const SessionParts& parts,
                                       const SessionExtent& extent,
                                       Position length) {
  SessionExtent result;
  result.target = shortened(extent.target, length);
  bool possible = parts.timeline->cache().spec().can_hold(result.target);
  if (parts.dflash != nullptr) {
    const Position context = std::min(extent.drafter.context.length, length);
    result.drafter = {shortened(extent.drafter.context, context), length - context};
    possible = possible && parts.dflash->context().spec().can_hold(result.drafter.context);
  }
  if (!possible) return std::nullopt;
  return result;
}

Status prepare_session(const SessionParts& parts, const SessionExtent& extent, Position length) {
  KAKEYA_TRY(parts.timeline->cache().prepare_restore(extent.target));
  return parts.dflash == nullptr ? Status() : parts.dflash->prepare_restore(extent.drafter, length);
}

void set_session(const SessionParts& parts,
                 std::span<const TokenId> tokens,
                 const SessionExtent& extent) {
  parts.timeline->restore(tokens, extent.target);
  if (parts.dflash != nullptr) parts.dflash->restore(extent.drafter);
}

}  // namespace kakeya
