#include "service/server_log.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <poll.h>
#include <spdlog/async.h>
#include <spdlog/async_logger.h>
#include <spdlog/details/null_mutex.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cmath>
#include <cstring>
#include <exception>
#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "base/status.h"
#include "service/json_text.h"

namespace kakeya::service {
namespace {

// A file opened for appending, closed at its end.
class LogDescriptor {
 public:
  explicit LogDescriptor(int descriptor) : descriptor_(descriptor) {}
  LogDescriptor(const LogDescriptor&) = delete;
  LogDescriptor& operator=(const LogDescriptor&) = delete;
  ~LogDescriptor() { ::close(descriptor_); }

  // A line of which a full disk took a part is ended before the next one. Of one thread, the log's.
  void write(std::string_view line) {
    if (is_broken_ && ::write(descriptor_, "\n", 1) != 1) throw std::runtime_error("no room");
    is_broken_ = false;
    const ssize_t written = ::write(descriptor_, line.data(), line.size());
    if (written == std::ssize(line)) return;
    is_broken_ = written > 0;
    throw std::runtime_error("a line was not written");
  }

 private:
  const int descriptor_;
  bool is_broken_ = false;
};

// A file whose place may be taken by another one while lines are written. Thread-safe.
class LogFile {
 public:
  explicit LogFile(std::string path) : path_(std::move(path)) {}

  Status open() {
    std::error_code ignored;  // open() says what is wrong
    std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ignored);
    constexpr int kFlags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC;
    const int descriptor = ::open(path_.c_str(), kFlags, 0666);
    if (descriptor < 0) {
      return invalid_argument("ServiceOptions::log_file {} cannot be opened: {}", path_,
                              std::strerror(errno));
    }
    auto opened = std::make_shared<LogDescriptor>(descriptor);
    const std::lock_guard lock(mutex_);
    file_.swap(opened);
    return {};
  }

  // The lock is not held meanwhile: a disk may hang.
  void write(std::string_view line) {
    std::shared_ptr<LogDescriptor> file;
    {
      const std::lock_guard lock(mutex_);
      file = file_;
    }
    file->write(line);
  }

 private:
  const std::string path_;
  std::mutex mutex_;
  std::shared_ptr<LogDescriptor> file_;
};

// Standard output, which may be a pipe that nobody reads: a line waits a second for it, and those
// behind it not at all until it takes bytes again. Of one thread, the log's.
class StandardOutput {
 public:
  void write(std::string_view line) {
    while (!line.empty()) {
      pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT, .revents = 0};
      takes_bytes_ = ::poll(&output, 1, takes_bytes_ ? kPatience : 0) > 0;
      // A pipe that is ready takes so many bytes without a wait.
      const ssize_t written = takes_bytes_ ? ::write(STDOUT_FILENO, line.data(),
                                                     std::min<std::size_t>(line.size(), PIPE_BUF))
                                           : -1;
      if (written <= 0) throw std::runtime_error("standard output takes nothing");
      line.remove_prefix(static_cast<std::size_t>(written));
    }
  }

 private:
  static constexpr int kPatience = 1000;  // milliseconds
  bool takes_bytes_ = true;
};

// The sink of one thread, the log's.
class LineSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  explicit LineSink(ServerLog::WriteLine write) : write_(std::move(write)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    write_(std::string(message.payload.data(), message.payload.size()) + "\n");
  }
  void flush_() override {}

  const ServerLog::WriteLine write_;
};

std::string now_in_utc() {
  const auto now = std::chrono::system_clock::now();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(now);
  const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(now - seconds);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)), rest.count());
}

std::string_view level_name(LogLevel level) {
  constexpr std::string_view kNames[] = {"debug", "info", "warn"};
  return kNames[static_cast<std::size_t>(level)];
}

// The time in milliseconds, to a thousandth.
double milliseconds(double seconds) {
  return std::round(seconds * 1e6) / 1e3;
}

}  // namespace

struct ServerLog::Output {
  std::function<Status()> reopen;  // empty: there is no file
  LogLevel least = LogLevel::kInfo;
  std::atomic<std::uint64_t> unwritten = 0;
  std::shared_ptr<spdlog::async_logger> logger;
  // Last: it ends first, and writes what waits.
  std::shared_ptr<spdlog::details::thread_pool> thread;
};

ServerLog::ServerLog() = default;
ServerLog::~ServerLog() = default;

std::unique_ptr<ServerLog> ServerLog::to(WriteLine write,
                                         LogLevel least,
                                         std::size_t most_waiting) {
  std::unique_ptr<ServerLog> log(new ServerLog());
  log->output_ = std::make_unique<Output>();
  Output& output = *log->output_;
  output.least = least;
  output.thread = std::make_shared<spdlog::details::thread_pool>(most_waiting, 1);
  output.logger = std::make_shared<spdlog::async_logger>(
      "serve", std::make_shared<LineSink>(std::move(write)), output.thread,
      spdlog::async_overflow_policy::overrun_oldest);
  output.logger->set_level(spdlog::level::trace);  // add() has looked
  output.logger->set_error_handler([&output](const std::string&) { ++output.unwritten; });
  return log;
}

Result<std::unique_ptr<ServerLog>> ServerLog::open(const std::string& place, LogLevel least) {
  if (place.empty()) return std::unique_ptr<ServerLog>(new ServerLog());
  if (place == "-") {
    return to([output = StandardOutput()](std::string_view line) mutable { output.write(line); },
              least, kMostWaiting);
  }
  const auto file = std::make_shared<LogFile>(place);
  KAKEYA_TRY(file->open());
  auto log = to([file](std::string_view line) { file->write(line); }, least, kMostWaiting);
  log->output_->reopen = [file] { return file->open(); };
  return log;
}

void ServerLog::add(LogLevel level,
                    std::string_view what,
                    const nlohmann::ordered_json& details) noexcept {
  if (!output_ || level < output_->least) return;
  try {
    nlohmann::ordered_json line = {
        {"time", now_in_utc()}, {"level", level_name(level)}, {"event", what}};
    line.update(details);
    output_->logger->log(spdlog::level::info, spdlog::string_view_t(json_text(line)));
  } catch (const std::exception&) {
    ++output_->unwritten;
  }
}

Status ServerLog::reopen() {
  return output_ && output_->reopen ? output_->reopen() : Status();
}

std::uint64_t ServerLog::lost() const {
  return output_ ? output_->unwritten + output_->thread->overrun_counter() : 0;
}

RequestRecord::RequestRecord(ServerLog& log, Client asked_by)
    : client(std::move(asked_by)), log_(log) {}

RequestRecord::~RequestRecord() {
  if (!begun_ && status == 0) return;  // a connection that was closed between two requests
  try {
    if (!finished_) finish();
    log_.add(level, "request", details());
  } catch (const std::exception&) {
    // Memory has run out.
  }
}

void RequestRecord::begin(std::string_view route) {
  route_ = route;
  begun_ = true;
  number_ = log_.count_request();
  begin_ = std::chrono::steady_clock::now();
}

void RequestRecord::first_token() {
  if (first_token_seconds_ >= 0.0) return;
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - begin_;
  first_token_seconds_ = since.count();
}

void RequestRecord::fail(StatusCode why) {
  end = why == StatusCode::kCancelled          ? "cancelled"
        : why == StatusCode::kDeadlineExceeded ? "deadline"
                                               : "error";
}

void RequestRecord::finish() {
  finished_ = true;
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - begin_;
  total_seconds_ = since.count();
  if (end.empty()) end = gone || status == 0 ? "cancelled" : status >= 400 ? "error" : "done";
  if (status >= 400)
    level = std::max(level, LogLevel::kInfo);  // of what is asked for all the time, too
  if (status == 401 || status == 403 || status == 429 || status >= 500) level = LogLevel::kWarn;
}

void RequestRecord::add_result(const RequestResult& result) {
  const GenerateResult& own = result.generated;
  drafted_ += own.drafted;
  accepted_ += own.accepted;
  queue_seconds_ = std::max(queue_seconds_, result.queue_seconds);
}

nlohmann::ordered_json RequestRecord::details() const {
  nlohmann::ordered_json json = {{"id", id},          {"number", number_},
                                 {"key", client.key}, {"peer", client.address},
                                 {"route", route_},   {"status", status},
                                 {"end", end},        {"total_ms", milliseconds(total_seconds_)}};
  if (!trace_id.empty()) json["trace_id"] = trace_id;
  if (!model.empty()) json["model"] = model;
  if (!not_enforced.empty()) json["not_enforced"] = not_enforced;
  if (!is_answer) return json;
  json["prompt_tokens"] = prompt_tokens;
  json["cached_tokens"] = cached_tokens;
  json["generated_tokens"] = generated;
  json["drafted_tokens"] = drafted_;
  json["accepted_tokens"] = accepted_;
  json["queue_ms"] = milliseconds(queue_seconds_);
  json["first_token_ms"] = nullptr;
  if (first_token_seconds_ >= 0.0) json["first_token_ms"] = milliseconds(first_token_seconds_);
  return json;
}

}  // namespace kakeya::service
