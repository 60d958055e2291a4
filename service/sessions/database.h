// A database of SQLite that this process alone has open. What a call has committed is there after
// kill -9 (write-ahead log; a machine that loses power may lose the last moments, never the rest).
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>
#include <sqlite3.h>

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "kakeya/status.h"

namespace kakeya::service {

// Takes what befell a database that is open, for the operator: one line that names its file. On the
// thread of the call that failed, one at a time; must be quick, and not use the database.
using ReportFailure = std::function<void(const Error& why)>;

struct DatabaseOptions {
  std::string folder = {};  // made if it is not there; empty: the database is in memory
  std::string name = {};    // of its file
  std::string what = {};    // its name in messages to clients ("the catalogue of sessions")
  const char* schema = "";  // makes the tables of a new one
  int version = 1;          // of the schema
  ReportFailure report = {};
};

// Thread-safe.
class Database {
 public:
  // Opens a database whose file, if there is one, is read from end to end and looked at for damage
  // (about 0.2 s for 100 MB). Errors: kUnavailable if the disk refuses or another process has the
  // file; kDataLoss for a file that is none or is damaged; kUnimplemented for another version. Each
  // is one line that names the file.
  static Result<std::unique_ptr<Database>> open(DatabaseOptions options);

  // Calls `call` with the connection, one call at a time, in a transaction that is kept if it
  // returns no error. What SQLite throws becomes an error: kDataLoss for a damaged file, else
  // kUnavailable; of kDataLoss from `call` the file is damaged, too. These errors are for clients:
  // they name no file. The operator is told more: of each failure, but of damage once.
  template <typename Call>
  auto run(const Call& call) -> decltype(call(std::declval<SQLite::Database&>())) {
    const std::lock_guard lock(mutex_);
    try {
      SQLite::Transaction transaction(connection_);
      auto result = call(connection_);
      if (result.has_value()) {
        transaction.commit();
      } else if (result.error().code() == StatusCode::kDataLoss) {
        return tl::unexpected(damaged_by(result.error().message()));
      }
      return result;
    } catch (const std::exception& failure) {
      return tl::unexpected(failed_by(failure));
    }
  }

  // Reports damage that only the reader of what was kept could see. The error for its client.
  Error report_damage(std::string_view how);

  // True once damage was found.
  bool is_damaged() const { return is_damaged_; }

 private:
  explicit Database(DatabaseOptions options);
  // Makes the tables of a new file, and looks through one that is there. Errors: as open().
  Status prepare();
  // Both under mutex_.
  Error failed_by(const std::exception& failure);
  Error damaged_by(std::string_view how);

  const DatabaseOptions options_;
  const std::string place_;  // for the operator
  std::atomic<bool> is_damaged_ = false;
  std::mutex mutex_;
  SQLite::Database connection_;  // under mutex_
};

}  // namespace kakeya::service
