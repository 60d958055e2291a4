// The drafting side of a session: the sources that the engine's draft options ask for, with the
// length policy; and what all sessions of an engine learn about drafting.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "decode/chain_source.h"
#include "decode/dflash_source.h"
#include "decode/length_policy.h"
#include "decode/ngram_source.h"
#include "decode/round_costs.h"
#include "kakeya/options.h"
#include "runtime/cost_cache.h"

namespace kakeya {

// DraftOptions::source, resolved.
struct DraftChoice {
  bool ngram = false;
  std::string drafter_dir;  // empty: no drafter

  bool any() const { return ngram || !drafter_dir.empty(); }
};

// Errors: kNotFound for a folder that is not there, naming what --draft can be.
Result<DraftChoice> resolve_draft_choice(const std::string& source, const std::string& model_dir);

// Measured costs and acceptance, shared by the sessions of an engine. Thread-safe.
class DraftStatistics {
 public:
  // `cache_folder` empty: nothing is read or written.
  DraftStatistics(std::string cache_folder, CostKey key)
      : cache_folder_(std::move(cache_folder)), key_(std::move(key)) {}

  // Costs measured before, by this engine or by an earlier run; tables of `max_length`.
  std::optional<MeasuredCosts> costs(std::int64_t max_length, bool with_drafter);
  void store(const MeasuredCosts& costs);

  // What the acceptance was like lately, for a policy that has seen nothing.
  void seed(LengthPolicy& policy);
  void remember(const LengthPolicy& policy);

 private:
  std::mutex mutex_;
  std::string cache_folder_;
  CostKey key_;
  std::optional<MeasuredCosts> costs_;
  std::optional<LengthPolicy> latest_;
};

// Puts a source around another one; for measurements.
using DraftWrapper = std::function<std::unique_ptr<DraftSource>(DraftSource&)>;

class SessionDrafts {
 public:
  // Tokens that n-grams propose at most.
  static constexpr std::int64_t kNgramLength = 15;

  // `dflash` may be null. At least one source.
  SessionDrafts(std::unique_ptr<DflashSource> dflash,
                bool unfused,
                bool ngram,
                DraftStatistics& statistics);

  // The same for a fork of the session: context and taps are shared until one of the two writes,
  // what the policy knows is copied, and a wrapper is put around the fork's source too.
  std::unique_ptr<SessionDrafts> fork();

  // Drafts through `wrapper` from now on.
  void wrap(const DraftWrapper& wrapper);

  DraftSource& source() { return *source_; }
  DflashSource* dflash() { return dflash_.get(); }
  bool unfused() const { return unfused_; }

  // The policy, made at the first call: from costs that are known, else by measuring them behind
  // the present tokens (the last one is run again, so that there are logits as before). Null if the
  // context has no room to measure in. `measured_seconds` is what measuring took.
  // Errors: of the passes.
  Result<LengthPolicy*> policy(Timeline& timeline, Sampler& sampler, double& measured_seconds);

  // The same, but null where costs are not known.
  LengthPolicy* known_policy();

  // The policy as it is, if there is one; for snapshots.
  std::optional<LengthPolicy>& present_policy() { return policy_; }

  // After a generation: tells the engine what was learnt.
  void remember();

 private:
  std::unique_ptr<DflashSource> dflash_;
  std::optional<NgramSource> ngram_;
  std::optional<ChainSource> chain_;
  DraftWrapper wrapper_;
  std::unique_ptr<DraftSource> wrapped_;
  DraftSource* source_ = nullptr;
  std::optional<LengthPolicy> policy_;
  DraftStatistics& statistics_;
  bool unfused_;
};

}  // namespace kakeya
