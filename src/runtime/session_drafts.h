// The drafting side of a session: the sources that the engine's draft options ask for.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "decode/dflash_source.h"
#include "decode/form_source.h"
#include "decode/generation.h"
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

  // `dflash` may be null. At least one source. With n-grams go drafts of forms.
  SessionDrafts(std::unique_ptr<DflashSource> dflash, bool ngram);

  // A copy for a fork of the session: context and taps are shared until one of the two writes, and
  // a wrapper is put around the fork's sources too.
  std::unique_ptr<SessionDrafts> fork();

  // Drafts through `wrapper` from now on.
  void wrap(const DraftWrapper& wrapper);

  std::span<DraftSource* const> sources() const { return {sources_.data(), count_}; }
  DflashSource* dflash() { return dflash_.get(); }

 private:
  std::unique_ptr<DflashSource> dflash_;
  FormSource form_;
  std::optional<NgramSource> ngram_;
  DraftWrapper wrapper_;
  std::array<std::unique_ptr<DraftSource>, Generation::kMostSources> wrapped_;
  std::array<DraftSource*, Generation::kMostSources> sources_{};
  std::size_t count_ = 0;
};

}  // namespace kakeya
