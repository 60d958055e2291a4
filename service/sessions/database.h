// A database of SQLite that this process alone has open. What a call has committed is there after
// kill -9 (write-ahead log; a machine that loses power may lose the last moments, never the rest).
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>
#include <sqlite3.h>

#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "kakeya/status.h"

namespace kakeya::service {

// Thread-safe.
class Database {
 public:
  // Opens the file `name` of a folder, which is made if it is not there; in memory if `folder` is
  // empty. `schema` makes the tables of a new one, whose version is `version`. Errors: kUnavailable
  // if the disk refuses or another process has the file; kDataLoss for a file that is none or is
  // damaged; kUnimplemented for another version. Each is one line that names the file.
  static Result<std::unique_ptr<Database>> open(const std::string& folder,
                                                const std::string& name,
                                                const char* schema,
                                                int version);

  // Calls `call` with the connection, one call at a time, in a transaction that is kept if it
  // returns no error. What SQLite throws becomes an error: kDataLoss for a damaged file, else
  // kUnavailable.
  template <typename Call>
  auto run(const Call& call) -> decltype(call(std::declval<SQLite::Database&>())) {
    const std::lock_guard lock(mutex_);
    try {
      SQLite::Transaction transaction(connection_);
      auto result = call(connection_);
      if (result.has_value()) transaction.commit();
      return result;
    } catch (const std::exception& failure) {
      return tl::unexpected(error_of(failure));
    }
  }

 private:
  explicit Database(const std::string& path);
  Error error_of(const std::exception& failure) const;

  const std::string place_;  // for messages
  std::mutex mutex_;
  SQLite::Database connection_;  // under mutex_
};

}  // namespace kakeya::service
