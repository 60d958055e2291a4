// Prompts that share passes: what Engine.generate() and Engine.stream() of Python step through.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/forms.h"
#include "bindings/generation.h"
#include "bindings/options.h"
#include "kakeya/engine.h"
#include "service/answer_splitter.h"

namespace kakeya::python {

// Requests of a scheduler of their own. step() belongs to one thread at a time and runs without the
// GIL; stop() and the rest may be called by others meanwhile. It keeps the engine alive.
class Batch {
 public:
  // One request for each of `prompts`, all as `wish` says, whose form and stop strings become those
  // of `asked`; at most `most_at_once` run at once. Without the GIL. Errors: those of
  // Forms::plan(), Engine::create_scheduler() and Scheduler::add(), the latter with the prompt's
  // number where there are several; kInvalidArgument for a constraint with several prompts, and for
  // rules beside those of calls.
  static Result<std::shared_ptr<Batch>> create(std::shared_ptr<Forms> forms,
                                               std::vector<std::vector<TokenId>> prompts,
                                               const GenerationWish& wish,
                                               service::AnswerOptions asked,
                                               std::int64_t most_at_once);

  // One pass; false if nothing is left to do. Without the GIL. Errors: the first one of a request.
  Result<bool> step();
  // Throws what the constraint raised in a pass. With the GIL.
  void rethrow() {
    if (constraint_) constraint_->rethrow();
  }
  // Lets another generation have the constraint, behind stop(). With the GIL.
  void release() {
    if (constraint_) constraint_->release();
  }
  const Birthplace& birthplace() const { return forms_->birthplace(); }
  // Ends what still runs; its generations are those of Cancelled requests then.
  void stop();

  // Text that became final since the last call, in order.
  std::string take_text();
  // The answer to the first prompt, as a message of the conversation. Errors: as generations().
  Result<ChatMessage> message() const;
  // In the order of the prompts. Errors: kFailedPrecondition before all have ended.
  Result<std::vector<Generation>> generations() const;

 private:
  struct Answer {
    std::optional<service::AnswerSplitter> splitter;  // nothing without a tokenizer
    std::string reasoning;
    std::vector<service::ToolCallPiece> calls;
    Generation generation;
    std::shared_ptr<Constraint> form;  // null: it is free
    bool ended = false;
  };

  Batch(std::shared_ptr<Forms> forms, std::shared_ptr<PythonConstraint> constraint)
      : forms_(std::move(forms)), engine_(forms_->engine()), constraint_(std::move(constraint)) {}
  static std::shared_ptr<Batch> make(std::shared_ptr<Forms> forms, const GenerationWish& wish);
  Status start(std::vector<std::vector<TokenId>> prompts,
               const TextOptions& options,
               std::int64_t most_at_once);
  Request request_of(std::size_t index, std::vector<TokenId> prompt, const TextOptions& options);
  bool take_token(Answer& answer, TokenId id);
  void take_piece(Answer& answer, const std::string& piece);
  void end(Answer& answer, const RequestResult& result);

  std::shared_ptr<Forms> forms_;
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<PythonConstraint> constraint_;  // null: none
  mutable std::mutex mutex_;                      // of what follows, which callbacks change
  std::vector<Answer> answers_;
  std::string text_;
  std::optional<Error> error_;
  // Destroyed first: it calls back while it ends.
  std::unique_ptr<Scheduler> scheduler_;
};

void bind_batch(nb::module_& module);

}  // namespace kakeya::python
