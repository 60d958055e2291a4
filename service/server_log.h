// The log of a server for its operator: lines of JSON, one a request once it has ended, and some on
// what happens to the server itself. Neither a prompt nor an answer is ever in one, nor a key.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "kakeya/scheduler.h"
#include "kakeya/status.h"
#include "service/client.h"
#include "service/service_options.h"

namespace kakeya::service {

// Thread-safe. Lines wait in a bounded queue for a thread that writes them, so that nobody waits
// for a disk; what does not fit pushes the oldest out.
class ServerLog {
 public:
  // Writes one line, with its end. What it throws counts as a line that was lost.
  using WriteLine = std::function<void(std::string_view line)>;

  static constexpr std::size_t kMostWaiting = 8192;  // lines

  // Appends to the file `place`, or to standard output if that is "-"; empty: says nothing. Lines
  // below `least` are left out. Errors: kInvalidArgument for a file that cannot be opened.
  static Result<std::unique_ptr<ServerLog>> open(const std::string& place, LogLevel least);
  // `write` is called on the log's own thread.
  static std::unique_ptr<ServerLog> to(WriteLine write, LogLevel least, std::size_t most_waiting);

  // Writes what waits.
  ~ServerLog();
  ServerLog(const ServerLog&) = delete;
  ServerLog& operator=(const ServerLog&) = delete;

  // {"time", "level", "event": what} and `details`. Never waits for what is written, never throws:
  // a line that there is no memory for is lost.
  void add(LogLevel level,
           std::string_view what,
           const nlohmann::ordered_json& details = nlohmann::ordered_json::object()) noexcept;

  // Opens the file anew, for its name may be another file's by now. Errors: as open(); the old one
  // is kept then.
  Status reopen();

  // Counts a request; its number, from 1 on.
  std::uint64_t count_request() { return ++requests_; }

  // Lines that were pushed out of the queue or could not be written.
  std::uint64_t lost() const;

 private:
  struct Output;
  ServerLog();

  std::unique_ptr<Output> output_;  // null: says nothing
  std::atomic<std::uint64_t> requests_ = 0;
};

// The log line of one request. The connection and each answer of its own hold it together; the last
// one to let go of it writes the line, so that what the scheduler did is in it, too. They write
// different members, so that it takes no lock.
class RequestRecord {
 public:
  RequestRecord(ServerLog& log, Client asked_by);
  // Writes the line, if there was a request.
  ~RequestRecord();
  RequestRecord(const RequestRecord&) = delete;
  RequestRecord& operator=(const RequestRecord&) = delete;

  // For the thread that reads the request and writes the answer.
  void begin(std::string_view route);  // when a header has come
  void first_token();                  // has come; only the first call counts
  double first_token_seconds() const { return first_token_seconds_; }  // below 0: none has come
  void fail(StatusCode why);  // how an answer ended that was not whole
  void finish();              // nothing more is done for it
  std::string id = {};
  std::string model = {};  // that answers, of several; empty: there is one
  Client client;
  std::string not_enforced = {};  // of the answer's form; empty: nothing
  std::string trace_id = {};      // of the trace that the request is a part of (W3C Trace Context)
  unsigned status = 0;            // of HTTP; 0: there was no reply
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;  // of those, not run
  std::int64_t generated = 0;      // tokens that the client was given
  std::string_view end = {};       // "stop", "length", "cancelled", "deadline", "error", "done"
  bool gone = false;               // the client, before the answer was whole
  bool is_answer = false;          // of a model
  LogLevel level = LogLevel::kInfo;
  std::chrono::steady_clock::time_point arrived = {};  // all of the request

  // Adds the result of an answer that has ended. On one thread at a time.
  void add_result(const RequestResult& result);

 private:
  using Time = std::chrono::steady_clock::time_point;

  nlohmann::ordered_json details() const;

  ServerLog& log_;
  std::uint64_t number_ = 0;  // since the start
  std::string route_ = "other";
  bool begun_ = false;
  bool finished_ = false;
  Time begin_ = std::chrono::steady_clock::now();
  double first_token_seconds_ = -1.0;  // below 0: there was none
  double total_seconds_ = 0.0;

  // The members that add_result() writes.
  std::int64_t drafted_ = 0;
  std::int64_t accepted_ = 0;
  double queue_seconds_ = 0.0;
};

}  // namespace kakeya::service
