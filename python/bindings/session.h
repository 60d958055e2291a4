// One timeline of tokens, as Python sees it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/calls.h"
#include "bindings/forms.h"
#include "bindings/generation.h"
#include "bindings/options.h"
#include "bindings/passes.h"
#include "kakeya/engine.h"

namespace kakeya::python {

// A session with its engine. Passes run without the GIL; while one does, other threads' calls are
// refused with kFailedPrecondition, those that only read too. All members throw Raised.
class PythonSession {
 public:
  PythonSession(std::shared_ptr<Forms> forms, std::unique_ptr<Session> session)
      : forms_(std::move(forms)), session_(std::move(session)) {}
  PythonSession(const PythonSession&) = delete;
  PythonSession& operator=(const PythonSession&) = delete;
  ~PythonSession() {
    if (forms_->birthplace().is_here()) {
      destroy_unlocked(
          [session = std::shared_ptr(std::move(session_))]() mutable { session.reset(); });
    } else {
      static_cast<void>(session_.release());
    }
  }

  // Marks the session as used by one thread.
  class Turn {
   public:
    explicit Turn(std::atomic<bool>& busy);
    Turn(Turn&& other) noexcept : busy_(std::exchange(other.busy_, nullptr)) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn() {
      if (busy_ != nullptr) *busy_ = false;
    }

   private:
    std::atomic<bool>* busy_;
  };

  // A generation before it begins.
  struct Generating {
    GenerationWish wish;
    std::shared_ptr<Constraint> form;  // null: it is free
    const Tokenizer* tokenizer;        // null: the model has none
  };

  Generation generate(GenerationWish wish);
  // The parts of generate(), for streams. `with_text`: the model must have a tokenizer. With the
  // GIL.
  Generating prepare(GenerationWish wish, bool with_text);
  Turn take_turn() { return Turn(busy_); }
  // Whoever calls has a turn, and not the GIL. `on_piece` is called after each token and between
  // chunks of the prompt, with text that may be empty; false ends the generation.
  Result<TextResult> run(Generating& generating, const TextCallback& on_piece);

  // Calls `use` with the session, without the GIL.
  template <typename Use>
  auto unlocked(const Use& use) {
    refuse_within_constraint();
    forms_->birthplace().require_here();
    const Turn turn(busy_);
    const Unlocked unlocked;
    return use(*session_);
  }
  std::unique_ptr<PythonSession> fork();
  const Birthplace& birthplace() const { return forms_->birthplace(); }
  // Most tokens that it can hold.
  std::int64_t context() const { return session_->context(); }
  // The numbers of one row.
  std::int64_t width(RowKind kind) const;

 private:
  std::shared_ptr<Forms> forms_;
  std::unique_ptr<Session> session_;
  std::atomic<bool> busy_{false};
};

nb::dict footprint_dict(const Footprint& footprint);

void bind_session(nb::module_& module);

}  // namespace kakeya::python
