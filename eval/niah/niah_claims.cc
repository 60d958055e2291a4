#include "eval/niah/niah_claims.h"

#include <algorithm>
#include <utility>

#include "eval/report/kv_modes.h"

namespace kakeya::eval {
namespace {

const KvMode* known_mode(const std::string& name) {
  const std::vector<KvMode>& modes = former_kv_modes();
  const auto found = std::ranges::find(modes, name, &KvMode::name);
  return found == modes.end() ? nullptr : &*found;
}

// True if a reply shows that its mode did what it is named for.
bool did_its_work(const KvMode& mode, const NiahReply& reply) {
  using enum Evicted;
  const SessionOptions& session = mode.session;
  if (session.window == 0) return reply.evicted_rows == 0;
  if (reply.evicted_rows == 0) return false;
  const bool restores = session.evicted_full == kRestore || session.evicted_sliding == kRestore;
  if (!restores) return reply.restored_rows == 0;
  return reply.restored_rows > 0 && reply.codes_matter.value_or(false);
}

}  // namespace

Interval NiahClaim::interval() const {
  return wilson_interval(found, samples);
}

std::vector<NiahClaim> niah_claims(std::span<const NiahSample> samples,
                                   std::span<const std::string> modes,
                                   std::span<const std::int64_t> lengths) {
  std::vector<NiahClaim> claims;
  for (std::size_t m = 0; m < modes.size(); ++m) {
    const KvMode* mode = known_mode(modes[m]);
    for (const std::int64_t length : lengths) {
      NiahClaim claim{.mode = modes[m], .length = length};
      bool worked = mode != nullptr || modes[m] == kServedMode;
      for (const NiahSample& sample : samples) {
        if (sample.place.length != length || m >= sample.replies.size()) continue;
        const NiahReply& reply = sample.replies[m];
        ++claim.samples;
        if (!reply.error.empty()) {
          ++claim.errors;
          continue;
        }
        if (reply.found == sample.answers) ++claim.found;
        worked = worked && (mode == nullptr || did_its_work(*mode, reply));
      }
      claim.made = worked && claim.samples >= kFewestNeedlePrompts;
      claims.push_back(std::move(claim));
    }
  }
  return claims;
}

}  // namespace kakeya::eval
