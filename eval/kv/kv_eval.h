// How much a way of keeping keys and values changes the model: its distribution over next tokens
// on given texts, and whether it still finds a needle, against a reference that keeps them exactly.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "eval/prompts/prompt_set.h"
#include "eval/report/kv_modes.h"
#include "eval/report/part_journal.h"
#include "eval/texts/distribution_statistics.h"
#include "kakeya/memory.h"
#include "runtime/engine_impl.h"

namespace kakeya::eval {

struct KvEvalOptions {
  SessionOptions reference = kv_reference();
  // Tokens of one pass, and max_rows of every session. Which rows a query sees depends on its own
  // position alone: other sizes give the same numbers, in more or less time.
  std::int64_t chunk = 64;
  std::int64_t needle_tokens = 16;  // most tokens of a reply
  // By the name that KvMode::projection has.
  std::map<std::string, std::shared_ptr<const Projection>> projections = {};
  // Tokens run by all sessions, or replies; done and in all.
  std::function<void(std::int64_t done, std::int64_t total)> on_progress = {};
  PartJournal* journal = nullptr;  // of texts and prompts
};

// The projection that a mode restores with; null: none.
const Projection* find_projection(const KvEvalOptions& options, const KvMode& mode);

// Bytes of keys and values of one session, as its ledger has them reserved.
struct KvBytes {
  std::uint64_t full = 0;
  std::uint64_t sliding = 0;
  std::uint64_t codes = 0;

  std::uint64_t total() const { return full + sliding + codes; }
};

KvBytes kv_bytes(const Footprint& footprint);

// The cost of one more token of context in bytes: the difference of the caches planned for 4,096
// and for 2,048 tokens (or for the model's limit and half of it, if that is less), by token. Layers
// whose rings are full by then cost nothing more. `chunk` as in KvEvalOptions. Errors: as
// plan_timeline.
Result<double> kv_bytes_per_token(const EngineImpl& engine,
                                  const KvMode& mode,
                                  std::int64_t chunk,
                                  const Projection* projection = nullptr);

struct KvTextResult {
  std::string mode;
  DistributionStatistics statistics = {};
  KvBytes bytes = {};  // of a session with the length as its context
  double bytes_per_token = 0.0;
};

// One set of texts, all cut to the same length.
struct KvTextReport {
  std::string set;
  std::int64_t length = 0;
  std::int64_t texts = 0;
  std::vector<KvTextResult> modes;  // in the order given
};

// The first `length` tokens of every text that has as many; length >= 2.
// Errors: kInvalidArgument if none has, with the length of the longest.
Result<PromptSet> cut_texts(const PromptSet& texts, std::int64_t length);

// Runs every text, all of them of `length` tokens, with the true tokens as input; compares each
// mode's distribution with the reference's at every position that has a next token. The sessions
// of reference and modes go through a text side by side, so that the logits of one chunk are all
// that is kept. Errors: of the sessions, with mode and text; kInternal for logits that are not
// finite.
Result<KvTextReport> evaluate_kv_texts(EngineImpl& engine,
                                       std::span<const KvMode> modes,
                                       const PromptSet& texts,
                                       std::int64_t length,
                                       const KvEvalOptions& options);

struct KvNeedleResult {
  std::string mode;
  std::int64_t found = 0;        // replies that contain the answer
  std::int64_t same_output = 0;  // replies that are the reference's, token for token
};

struct KvNeedleReport {
  std::string set;
  std::int64_t length = 0;  // tokens of the prompts, about
  std::int64_t prompts = 0;
  std::int64_t prompt_tokens = 0;  // of all prompts
  std::int64_t reference_found = 0;
  std::vector<KvNeedleResult> modes;  // in the order given
};

// Greedy replies to prompts that have an answer. Errors: of the sessions, with mode and prompt.
Result<KvNeedleReport> evaluate_kv_needles(EngineImpl& engine,
                                           std::span<const KvMode> modes,
                                           const PromptSet& prompts,
                                           std::int64_t length,
                                           const KvEvalOptions& options);

}  // namespace kakeya::eval
