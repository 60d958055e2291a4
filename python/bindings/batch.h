// Prompts that share passes: what Engine.generate() and Engine.stream() of Python step through.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/generation.h"
#include "kakeya/engine.h"
#include "kakeya/text_generation.h"
#include "kakeya/text_stream.h"

namespace kakeya::python {

// Requests of a scheduler of their own. step() belongs to one thread at a time and runs without the
// GIL; stop() and the rest may be called by others meanwhile. It keeps the engine alive.
class Batch {
 public:
  // One request for each of `prompts`, all with `options`; at most `most_at_once` run at once.
  // Errors: those of TextStream::create(), Engine::create_scheduler() and Scheduler::add(), the
  // latter with the prompt's number where there are several.
  static Result<std::shared_ptr<Batch>> create(std::shared_ptr<Engine> engine,
                                               std::vector<std::vector<TokenId>> prompts,
                                               const TextOptions& options,
                                               std::int64_t most_at_once);

  // One pass; false if nothing is left to do. Errors: the first one of a request.
  Result<bool> step();
  // Ends what still runs; its generations are those of Cancelled requests then.
  void stop();

  // Text that became final since the last call, in order.
  std::string take_text();
  // In the order of the prompts. Errors: kFailedPrecondition before all have ended.
  Result<std::vector<Generation>> generations() const;

 private:
  struct Answer {
    std::optional<TextStream> stream;  // nothing without a tokenizer
    Generation generation;
    bool ended = false;
  };

  explicit Batch(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}
  Request request_of(std::size_t index, std::vector<TokenId> prompt, const TextOptions& options);
  bool take_token(Answer& answer, TokenId id);
  void end(Answer& answer, const RequestResult& result);

  std::shared_ptr<Engine> engine_;
  mutable std::mutex mutex_;  // of what follows, which callbacks change
  std::vector<Answer> answers_;
  std::string text_;
  std::optional<Error> error_;
  // Destroyed first: it calls back while it ends.
  std::unique_ptr<Scheduler> scheduler_;
};

void bind_batch(nb::module_& module);

}  // namespace kakeya::python
