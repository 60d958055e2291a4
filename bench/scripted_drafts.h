// Drafts with a given acceptance: a real source does its work and takes its time, then its
// proposals are replaced by ones that are right or wrong as a curve says. Needs the plain output
// beforehand.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/random.h"
#include "decode/draft_source.h"

namespace kakeya::bench {

// The script of one run's drafts; shared with the source, set before each run.
struct DraftScript {
  std::vector<TokenId> tokens;   // the plain output with its prompt, by position
  std::vector<double> survival;  // [d]: share of rounds in which the first d + 1 drafts are right
  std::int64_t vocab_size = 0;
  // Decides which positions are hard. Runs with the same number meet the same luck, whatever their
  // draft length, so that they can be compared.
  std::uint64_t luck = 1;
};

class ScriptedDrafts final : public DraftSource {
 public:
  // Both must outlive it.
  ScriptedDrafts(DraftSource& source, DraftScript& script) : source_(source), script_(script) {}

  std::int64_t max_length() const override { return source_.max_length(); }
  DraftOffer offer(std::span<const TokenId> tokens, Sampler& sampler) override {
    return source_.offer(tokens, sampler);
  }
  Status draft(std::span<const TokenId> tokens, Sampler& sampler, std::span<TokenId> out) override;
  std::uint64_t bytes_read() const override { return source_.bytes_read(); }

 private:
  DraftSource& source_;
  DraftScript& script_;
};

}  // namespace kakeya::bench
