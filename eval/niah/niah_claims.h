// How many needles were found, by length and way of keeping keys and values, and how sure one may
// be of that.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "eval/prompts/needle_prompts.h"
#include "eval/report/bootstrap.h"
#include "eval/report/report_fields.h"

namespace kakeya::eval {

// The only mode of a run that asks a server, of whose rows nothing is known.
inline constexpr const char* kServedMode = "served";
// The fewest prompts of which something is claimed.
inline constexpr std::int64_t kFewestNeedlePrompts = 20;

// The reply to one prompt in one mode.
struct NiahReply {
  std::string mode = {};
  std::string sha256 = {};  // of the reply's ids; empty after an error
  std::int64_t found = 0;   // answers that it contains
  double seconds = 0.0;     // prefill and decoding
  // Rows of keys and values, of all layers, that the first token of the reply could not see for
  // they had been evicted, and how many of those were restored: as the session's cache says.
  std::int64_t evicted_rows = 0;
  std::int64_t restored_rows = 0;
  // Where rows are restored: whether the logits behind the prompt change when the codes of the
  // evicted positions are set to zero, and come back, bit for bit, with the codes.
  std::optional<bool> codes_matter = {};
  std::string error = {};  // empty: none
};

// One prompt and its replies in all modes, in their order.
struct NiahSample {
  NeedlePlace place = {};
  std::string sha256 = {};     // of the prompt's ids
  std::int64_t tokens = 0;     // of the prompt
  std::int64_t needle_at = 0;  // index of the first needle's first token
  std::int64_t answers = 0;
  std::vector<NiahReply> replies = {};
};

// The claim of the samples of one mode and length.
struct NiahClaim {
  std::string mode = {};
  std::int64_t length = 0;
  std::int64_t samples = 0;
  std::int64_t found = 0;   // replies with all answers
  std::int64_t errors = 0;  // which count as not found
  bool made = false;        // false: too few samples, or the mode did not do what it is named for
  double recall() const { return static_cast<double>(found) / static_cast<double>(samples); }
  Interval interval() const;
};

// For each mode and length, in their order. A claim is made from kFewestNeedlePrompts on, of a mode
// that evicts rows if all its replies had some evicted, of one that restores them if in all replies
// rows were restored and their codes matter. Modes of unknown names but kServedMode claim nothing.
std::vector<NiahClaim> niah_claims(std::span<const NiahSample> samples,
                                   std::span<const std::string> modes,
                                   std::span<const std::int64_t> lengths);

// As reports and journals have them. Errors of the second: kDataLoss for what is no reply.
Report niah_reply_json(const NiahReply& reply);
Result<NiahReply> parse_niah_reply(const Report& json);
Report niah_sample_json(const NiahSample& sample);
Report niah_claim_json(const NiahClaim& claim);
// The samples of a report whose fields were checked.
std::vector<NiahSample> niah_samples_of(const Report& report);

}  // namespace kakeya::eval
