#include "runtime/admission.h"

#include <algorithm>

#include "base/status.h"
#include "runtime/engine_impl.h"

namespace kakeya {

namespace {

// The tokens that a growing session has room for beyond its first ones: with less it might be
// preempted at once.
constexpr std::int64_t kFirstTokens = 64;

}  // namespace

Result<std::uint64_t> Admission::need(const SessionOptions& options,
                                      bool logprobs,
                                      std::int64_t tokens,
                                      const WorkspacePlan& passes) const {
  const std::int64_t most = std::min(tokens + kFirstTokens, engine_.session_context(options));
  KAKEYA_ASSIGN_OR_RETURN(const SessionNeed need, engine_.session_need(options, logprobs, most));
  WorkspacePlan grown = engine_.workspace().reserved_plan();
  const std::uint64_t before = estimate_workspace(grown, engine_.backend()).total_reserved();
  grown.include(need.workspace);
  grown.include(passes);
  const std::uint64_t growth =
      estimate_workspace(grown, engine_.backend()).total_reserved() - before;
  const std::uint64_t bytes = need.session.total_reserved() + growth;
  if (can_ever_have(bytes)) return bytes;
  return error(StatusCode::kResourceExhausted,
               "a session of {} tokens needs {}, but the memory limit leaves {} beside weights and "
               "passes",
               engine_.session_context(options), need.session.to_string(),
               format_bytes(most_bytes()));
}

std::uint64_t Admission::most_bytes() const {
  const MemorySpace& space = engine_.backend().memory();
  const MemoryBudget& budget = engine_.budget();
  const std::uint64_t fixed =
      budget.footprint_in(space).reserved_bytes(MemoryClass::kWeights) +
      estimate_workspace(engine_.workspace().reserved_plan(), engine_.backend()).total_reserved();
  return fixed < budget.limit_of(space) ? budget.limit_of(space) - fixed : 0;
}

bool Admission::can_ever_have(std::uint64_t bytes) const {
  return bytes <= most_bytes();
}

std::uint64_t Admission::free_bytes() const {
  const MemorySpace& space = engine_.backend().memory();
  return engine_.budget().limit_of(space) - engine_.budget().footprint_in(space).total_reserved();
}

bool Admission::is_alone() const {
  const Footprint held = engine_.budget().footprint_in(engine_.backend().memory());
  std::uint64_t bytes = 0;
  for (const MemoryClass of_sessions : {MemoryClass::kKvSliding, MemoryClass::kKvFull,
                                        MemoryClass::kDrafter, MemoryClass::kCodes}) {
    bytes += held.reserved_bytes(of_sessions);
  }
  return bytes == 0;
}

bool Admission::can_have(std::uint64_t bytes) const {
  const std::uint64_t free = free_bytes();
  if (bytes <= free) return true;
  // The cache is host memory.
  const PromptCache* cache = engine_.prompt_cache();
  return cache != nullptr && engine_.backend().memory().is_host() && bytes - free <= cache->bytes();
}

bool Admission::make_room(std::uint64_t bytes) const {
  while (can_have(bytes)) {
    const std::uint64_t free = free_bytes();
    if (bytes <= free) return true;
    // Somebody may be starting from the only entries that are left.
    if (!engine_.prompt_cache()->reclaim(bytes - free)) return false;
  }
  return false;
}

}  // namespace kakeya
