// How far the outputs of one model are from those of another with the same vocabulary, on given
// texts.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "eval/report/part_journal.h"
#include "eval/texts/distribution_statistics.h"
#include "kakeya/status.h"
#include "kakeya/types.h"
#include "runtime/engine_impl.h"

namespace kakeya::eval {

// Called with the tokens run by both and those to be run; an error ends the work.
using DifferenceProgress = std::function<Status(std::uint64_t done, std::uint64_t total)>;

struct WindowDifference {
  DistributionStatistics statistics = {};
  double seconds = 0.0;  // that it took to run, in whatever run it was
};

// Where the windows of the set `set` are kept, if anywhere.
struct WindowJournal {
  PartJournal* journal = nullptr;
  std::string set = {};
};

// Runs every window of tokens, each from nothing, through both models and compares their
// distributions at every position that has a next token; one of the result is of one window.
// Sessions keep keys and values as their engine does. Keeps the logits of one pass. Errors:
// kInvalidArgument for vocabularies of different sizes; those of the sessions, of `progress` and
// of PartJournal::result; kInternal for logits that are not finite.
Result<std::vector<WindowDifference>> compare_windows(EngineImpl& reference,
                                                      EngineImpl& other,
                                                      std::span<const std::vector<TokenId>> windows,
                                                      const DifferenceProgress& progress,
                                                      const WindowJournal& journal = {});

// The statistics of all windows together.
Result<DistributionStatistics> compare_models(EngineImpl& reference,
                                              EngineImpl& other,
                                              std::span<const std::vector<TokenId>> windows,
                                              const DifferenceProgress& progress);

}  // namespace kakeya::eval
