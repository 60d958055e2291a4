// The drafting side of a session: the sources that the engine's draft options ask for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "decode/chain_source.h"
#include "decode/dflash_source.h"
#include "decode/ngram_source.h"
#include "kakeya/options.h"

namespace kakeya {

// DraftOptions::source, resolved.
struct DraftChoice {
  bool ngram = false;
  std::string drafter_dir;  // empty: no drafter

  bool any() const { return ngram || !drafter_dir.empty(); }
};

// Errors: kNotFound for a folder that is not there, naming what --draft can be.
Result<DraftChoice> resolve_draft_choice(const std::string& source, const std::string& model_dir);

// Puts a source around another one; for measurements.
using DraftWrapper = std::function<std::unique_ptr<DraftSource>(DraftSource&)>;

class SessionDrafts {
 public:
  // Tokens that n-grams propose at most.
  static constexpr std::int64_t kNgramLength = 15;

  // `dflash` may be null. At least one source.
  SessionDrafts(std::unique_ptr<DflashSource> dflash, bool ngram);

  // A copy for a fork of the session: context and taps are shared until one of the two writes, and
  // a wrapper is put around the fork's source too.
  std::unique_ptr<SessionDrafts> fork();

  // Drafts through `wrapper` from now on.
  void wrap(const DraftWrapper& wrapper);

  DraftSource& source() { return *source_; }
  DflashSource* dflash() { return dflash_.get(); }

 private:
  std::unique_ptr<DflashSource> dflash_;
  std::optional<NgramSource> ngram_;
  std::optional<ChainSource> chain_;
  DraftWrapper wrapper_;
  std::unique_ptr<DraftSource> wrapped_;
  DraftSource* source_ = nullptr;
};

}  // namespace kakeya
