#include "bindings/stream.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <utility>

#include "bindings/errors.h"
#include "bindings/passes.h"

namespace kakeya::python {

Stream::Stream(PythonSession& session, GenerationWish wish)
    : session_(session),
      generating_(session.prepare(std::move(wish), /*with_text=*/true)),
      turn_(session.take_turn()),
      worker_([this] { leave(); }),
      thread_([this] { work(); }) {}

std::shared_ptr<Stream> Stream::create(PythonSession& session, GenerationWish wish) {
  return {new Stream(session, std::move(wish)), [](Stream* ended) {
            // A fork has neither its thread nor what that held.
            if (ended->birthplace_.is_here()) delete ended;
          }};
}

void Stream::work() {
  Worker::begin();
  auto result = session_.run(generating_, [&](std::string_view piece) { return give(piece); });
  destroy_postponed();
  {
    const std::scoped_lock lock(mutex_);
    result_.emplace(std::move(result));
    done_ = true;
  }
  changed_.notify_all();
  worker_.finish();
}

bool Stream::give(std::string_view piece) {
  std::unique_lock lock(mutex_);
  if (piece.empty() || left_) return !left_;
  piece_ = piece;
  wanted_ = false;
  changed_.notify_all();
  changed_.wait(lock, [&] { return wanted_ || left_; });
  return !left_;
}

void Stream::leave() {
  {
    const std::scoped_lock lock(mutex_);
    left_ = true;
  }
  changed_.notify_all();
}

std::optional<std::string> Stream::wait_for_piece(Callbacks& callbacks) {
  std::unique_lock lock(mutex_);
  wanted_ = true;
  changed_.notify_all();
  while (piece_.empty() && !done_) {
    if (changed_.wait_for(lock, kTimeBetweenSignals) == std::cv_status::no_timeout) continue;
    lock.unlock();
    if (!callbacks.check_signals()) leave();
    lock.lock();
  }
  if (piece_.empty()) return std::nullopt;
  return std::exchange(piece_, {});
}

std::optional<std::string> Stream::next() {
  refuse_within_constraint();
  birthplace_.require_here();
  if (!turn_) return std::nullopt;
  Callbacks callbacks;
  auto piece = [&] {
    const Unlocked unlocked;
    return wait_for_piece(callbacks);
  }();
  if (piece) return piece;
  close();
  callbacks.rethrow();
  if (generating_.wish.constraint) generating_.wish.constraint->rethrow();
  value_of(*std::exchange(result_, std::nullopt));
  return std::nullopt;
}

void Stream::close() {
  if (!birthplace_.is_here()) return;
  run_unlocked([&] {
    leave();
    if (thread_.joinable()) thread_.join();
  });
  if (generating_.wish.constraint) generating_.wish.constraint->release();
  turn_.reset();
}

void bind_stream(nb::module_& module) {
  nb::class_<Stream>(module, "Stream", "A generation of a session, piece by piece.")
      .def("next", &Stream::next, nb::call_guard<Call>())
      .def("close", &Stream::close);
  module.def(
      "create_stream",
      [](PythonSession& session, const nb::dict& options) {
        return Stream::create(session, generation_wish(options));
      },
      nb::keep_alive<0, 1>(), nb::call_guard<Call>(),
      nb::sig("def create_stream(session: Session, options: collections.abc.Mapping[str, object], "
              "/) -> Stream"));
}

}  // namespace kakeya::python
