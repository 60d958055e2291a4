// Measures what the phases of a round cost on this machine with this model, for the length policy.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/sampler.h"
#include "decode/draft_source.h"
#include "decode/length_policy.h"
#include "decode/timeline.h"
#include "kakeya/status.h"

namespace kakeya {

struct MeasuredCosts {
  std::vector<double> verify;  // [i]: seconds of a target pass of i + 1 rows and its choices
  std::vector<double> draft;   // [i]: of drafting i + 1 tokens; empty without a drafter
};

// Runs blocks of several sizes behind the present tokens, none of which is committed: nothing but
// the logits changes. Sizes between the measured ones are interpolated; repetitions come in random
// order and their lower quartiles count. Needs exactly one pending token and room for
// max_length + 1 rows; `drafter` may be null. Takes about half a second, or a few passes of each
// size if those take longer. Errors: as Timeline::verify and DraftSource::draft.
Result<MeasuredCosts> measure_round_costs(Timeline& timeline,
                                          Sampler& sampler,
                                          std::int64_t max_length,
                                          DraftSource* drafter);

// Costs of every size 1 ... most from samples of increasing `sizes`, the first 1 and the last
// `most`: linear in between and never falling. A larger block that seems cheaper shows that the
// smaller one was disturbed, so that one is lowered. Reorders the samples, none of which is empty.
std::vector<double> costs_of_samples(const std::vector<std::int64_t>& sizes,
                                     std::vector<std::vector<double>>& samples,
                                     std::int64_t most);

// Measured costs for the lanes of a source; n-grams are free. The tables are as long as `source`
// needs.
RoundCosts costs_of(const DraftSource& source, const MeasuredCosts& measured);

}  // namespace kakeya
