// The event loop of one connection: whatever may wait does so in it, on the connection's thread.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <cstddef>
#include <optional>
#include <utility>

namespace kakeya::wire {

// One thread at a time, but for wake() and what is posted to context().
class Loop {
 public:
  using ErrorCode = boost::system::error_code;

  boost::asio::io_context& context() { return io_; }

  // Runs until one more handler has run.
  void run_one() { io_.run_one(); }

  // Runs until the operation that `start` begins with a handler has ended.
  template <typename Start>
  ErrorCode finish(const Start& start) {
    std::optional<ErrorCode> outcome;
    start([&outcome](ErrorCode failure, std::size_t = 0) { outcome = failure; });
    while (!outcome) io_.run_one();
    return *outcome;
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
