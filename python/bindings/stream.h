// A generation of a session that is asked for its text piece by piece.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "bindings/calls.h"
#include "bindings/session.h"

namespace kakeya::python {

// Session::generate() does not return between tokens, so it runs on a thread of its own, which is
// never of Python's, and waits wherever nobody has asked for the next piece. The session is busy
// meanwhile. One thread at a time; all members are called with the GIL, and throw Raised or what a
// callback raised.
class Stream {
 public:
  // The session outlives it.
  static std::shared_ptr<Stream> create(PythonSession& session, GenerationWish wish);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { close(); }

  // The next text, not empty; nothing behind the last one.
  std::optional<std::string> next();
  // Ends the generation behind the token of the last piece.
  void close();

 private:
  Stream(PythonSession& session, GenerationWish wish);
  void work();
  // On the thread; false if no more is wanted.
  bool give(std::string_view piece);
  void leave();
  // Without the GIL.
  std::optional<std::string> wait_for_piece(Callbacks& callbacks);

  PythonSession& session_;
  Birthplace birthplace_;
  PythonSession::Generating generating_;
  std::optional<PythonSession::Turn> turn_;
  std::mutex mutex_;  // of what follows, with which nobody asks for the GIL
  std::condition_variable changed_;
  bool wanted_ = false;
  bool left_ = false;
  bool done_ = false;
  std::string piece_;
  std::optional<Result<TextResult>> result_;
  Worker worker_;
  std::thread thread_;
};

void bind_stream(nb::module_& module);

}  // namespace kakeya::python
