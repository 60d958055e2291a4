// The event loop of one connection: whatever may wait does so in it, on the connection's thread.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <cstddef>
#include <optional>
#include <utility>

namespace kakeya::wire {

// The end of an operation of Boost.Asio, and the one type of handler that operations are begun
// with: each type compiles all of an operation anew.
struct Completion {
  using ErrorCode = boost::system::error_code;
  struct Outcome {
    std::optional<ErrorCode> failure;  // none while the operation goes on; one of value 0: success
    std::size_t bytes = 0;             // that were read or written
  };

  void operator()(ErrorCode failure, std::size_t bytes = 0) const { *outcome = {failure, bytes}; }

  Outcome* outcome;
};

// One thread at a time, but for wake() and what is posted to context().
class Loop {
 public:
  using ErrorCode = boost::system::error_code;

  boost::asio::io_context& context() { return io_; }

  // Runs until one more handler has run.
  void run_one() { io_.run_one(); }

  // Runs until the operation that `start` begins with a Completion has ended; adds its bytes.
  template <typename Start>
  ErrorCode finish(const Start& start, std::size_t* bytes = nullptr) {
    Completion::Outcome outcome;
    start(Completion{&outcome});
    while (!outcome.failure) io_.run_one();
    if (bytes != nullptr) *bytes += outcome.bytes;
    return *outcome.failure;
  }

  // Notes that there is news, and ends a run_one(). From any thread.
  void wake() {
    boost::asio::post(io_, [this] { has_news_ = true; });
  }
  bool has_news() const { return has_news_; }
  // Returns has_news(), which is false from here on.
  bool take_news() { return std::exchange(has_news_, false); }

 private:
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
      io_.get_executor()};
  bool has_news_ = false;
};

}  // namespace kakeya::wire
