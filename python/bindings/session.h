// One timeline of tokens, as Python sees it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/generation.h"
#include "kakeya/engine.h"
#include "kakeya/text_generation.h"

namespace kakeya::python {

// A session with its engine. Passes run without the GIL; while one does, other threads' calls are
// refused with kFailedPrecondition, those that only read too. All members throw Raised.
class PythonSession {
 public:
  PythonSession(std::shared_ptr<Engine> engine, std::unique_ptr<Session> session)
      : engine_(std::move(engine)), session_(std::move(session)) {}

  // `on_text`: None, or called with each piece of text, which may be empty, and between chunks of
  // the prompt; False ends the generation.
  Generation generate(const TextOptions& options, const nb::object& on_text);

  // Calls `use` with the session, without the GIL.
  template <typename Use>
  auto unlocked(const Use& use) {
    const Turn turn(busy_);
    const nb::gil_scoped_release unlocked;
    return use(*session_);
  }
  std::unique_ptr<PythonSession> fork();

 private:
  // Marks the session as used by one thread.
  class Turn {
   public:
    explicit Turn(std::atomic<bool>& busy);
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() { busy_ = false; }

   private:
    std::atomic<bool>& busy_;
  };

  std::shared_ptr<Engine> engine_;
  std::unique_ptr<Session> session_;
  std::atomic<bool> busy_{false};
};

nb::dict footprint_dict(const Footprint& footprint);

void bind_session(nb::module_& module);

}  // namespace kakeya::python
