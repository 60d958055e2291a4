// Admission: checks that there is memory for a session before anything of it is allocated.
#pragma once

#include <cstdint>

#include "decode/workspace.h"
#include "kakeya/options.h"
#include "kakeya/status.h"

namespace kakeya {

class EngineImpl;

// Thread-safe. Bytes are of the memory where sessions lie.
class Admission {
 public:
  // The engine must outlive it.
  explicit Admission(EngineImpl& engine) : engine_(engine) {}

  // The bytes that a session of these options takes; one that grows, with `tokens` tokens and some
  // more. `logprobs`: its generation wants log-probabilities. `passes`: what they must have room
  // for besides. Errors: kInvalidArgument for options out of range or that cannot share passes;
  // kResourceExhausted, with the need by class, if it would not fit were nobody else there.
  Result<std::uint64_t> need(const SessionOptions& options,
                             bool logprobs,
                             std::int64_t tokens,
                             const WorkspacePlan& passes = {}) const;
  // True if so much would fit if nobody else were there.
  bool can_ever_have(std::uint64_t bytes) const;
  // True if so much is free, or would be if the prompt cache gave way.
  bool can_have(std::uint64_t bytes) const;
  // Has the prompt cache give way if so much becomes free by that; false, and the cache stays, if
  // not. What is free is not reserved: others of the engine may take it.
  bool make_room(std::uint64_t bytes) const;
  std::uint64_t free_bytes() const;
  // True if no session of the engine has memory, so that none will become free.
  bool is_alone() const;

 private:
  // The most bytes that sessions can have beside weights and workspace.
  std::uint64_t most_bytes() const;

  EngineImpl& engine_;
};

}  // namespace kakeya
