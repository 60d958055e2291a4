#include "niah_claims.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kv_modes.h"

namespace kakeya::eval {
namespace {

const KvMode* known_mode(const std::string& name) {
  const auto found = std::ranges::find(kv_modes(), name, &KvMode::name);
  return found == kv_modes().end() ? nullptr : &*found;
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

Interval wilson_interval(std::int64_t found, std::int64_t samples) {
  constexpr double kZ = 1.959963984540054;  // 97.5 % of a normal distribution lie below
  const auto n = static_cast<double>(samples);
  const double share = static_cast<double>(found) / n;
  const double scale = 1.0 + kZ * kZ / n;
  const double centre = (share + kZ * kZ / (2.0 * n)) / scale;
  const double half = kZ / scale * std::sqrt(share * (1.0 - share) / n + kZ * kZ / (4.0 * n * n));
  // Where nothing or everything was found one end is the share itself, but for rounding.
  return {.low = found == 0 ? 0.0 : centre - half, .high = found == samples ? 1.0 : centre + half};
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
