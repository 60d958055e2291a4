// One side of a comparison: an engine that keeps a model loaded and answers commands, one a line,
// each with one line of JSON. Both engines are driven by this code, so that they run the same
// tokens in the same passes under the same clock. README.md lists the commands.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "kakeya/status.h"

namespace kakeya::peers {

// Tokens of one prompt that an engine went on with by itself.
struct Generation {
  std::vector<std::int32_t> ids;
  double seconds = 0.0;  // of decoding, without the prompt
  std::int64_t drafted = 0;
  std::int64_t accepted = 0;
  std::int64_t rounds = 0;  // passes of the target
};

struct TextTokens {
  std::vector<std::int32_t> ids;  // without one that begins a sequence
  std::int32_t bos = -1;          // which does; -1: the model has none
};

// An engine with a model and one sequence. One thread.
class Peer {
 public:
  virtual ~Peer() = default;

  virtual const char* name() const = 0;
  virtual std::int64_t vocab_size() const = 0;
  // Most tokens of one pass, and most rows of logits that one gives.
  virtual std::int64_t max_rows() const = 0;
  virtual std::int64_t max_logit_rows() const = 0;

  // Runs the ids behind the sequence in one pass; the logits of the last `logit_rows` of them are
  // there afterwards.
  virtual Status run(std::span<const std::int32_t> ids, std::int64_t logit_rows) = 0;
  // Row after row, of the last run().
  virtual std::span<const float> logits() const = 0;
  // Forgets the tokens from `length` on: all of them, or not more than max_rows().
  virtual Status truncate(std::int64_t length) = 0;
  // Bytes of weights and cached rows that all passes so far had to read; 0 if it does not know.
  virtual std::uint64_t bytes_read() const = 0;
  // Greedy, with drafts if the engine was started with them, `count` tokens whatever they are. The
  // sequence must be empty, and is afterwards; `prompt` must not be.
  virtual Result<Generation> generate(std::span<const std::int32_t> prompt, std::int64_t count) = 0;
  // Errors: kUnimplemented if this side is not asked; what the tokenizer says.
  virtual Result<TextTokens> tokenize(std::string_view text);
};

// The flags of both sides' commands.
struct PeerFlags {
  std::string model;
  int threads = 0;  // 0: one for each CPU
  std::int64_t context = 8192;
};

// Adds --threads and --context; --model is each side's own.
void add_peer_flags(CLI::App& app, PeerFlags& flags);

// Most tokens of a pass, and rows of logits, that both sides are started with.
inline constexpr std::int64_t kPeerMaxRows = 512;
inline constexpr std::int64_t kPeerMaxLogitRows = 64;

// Says on `out` that the model is there and how long that took, then answers the commands of `in`
// until "quit" or its end.
void serve(Peer& peer, double load_seconds, std::istream& in, std::ostream& out);

// The rest of a side's main(): serves standard input with the engine, or says on standard error why
// there is none. `watch` runs since the process began. Returns the exit code.
int serve_opened(const char* program,
                 const Result<std::unique_ptr<Peer>>& peer,
                 const Stopwatch& watch);

}  // namespace kakeya::peers
