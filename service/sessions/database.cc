#include "service/sessions/database.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/status.h"

namespace kakeya::service {
namespace {

std::string file_of(const DatabaseOptions& options) {
  if (options.folder.empty()) return "";
  return (std::filesystem::path(options.folder) / options.name).string();
}

// The error for the operator.
Error database_error(const std::string& place, const std::exception& failure) {
  const auto* const sqlite = dynamic_cast<const SQLite::Exception*>(&failure);
  const int code = sqlite == nullptr ? SQLITE_ERROR : sqlite->getErrorCode();
  if (code == SQLITE_BUSY) {
    return Error(StatusCode::kUnavailable, place + ": another process has it open");
  }
  const bool damaged = code == SQLITE_CORRUPT || code == SQLITE_NOTADB;
  return Error(damaged ? StatusCode::kDataLoss : StatusCode::kUnavailable,
               fmt::format("{}: {}", place, failure.what()));
}

// The error at a start; of damage with a way out.
Error opening_error(const std::string& place, const Error& why) {
  if (why.code() != StatusCode::kDataLoss) return why;
  return Error(why.code(), fmt::format("{}: to start without what it has kept, move {}* away",
                                       why.message(), place));
}

// Errors: kDataLoss, with the first damage that SQLite finds.
Status check_whole(SQLite::Database& connection, const std::string& place) {
  SQLite::Statement check(connection, "PRAGMA quick_check(1)");
  std::string found = check.executeStep() ? check.getColumn(0).getString() : "nothing was read";
  if (found == "ok") return {};
  std::ranges::replace(found, '\n', ' ');
  return data_loss("{}: the database is damaged: {}", place, found);
}

}  // namespace

Database::Database(DatabaseOptions options)
    : options_(std::move(options)),
      place_(options_.folder.empty() ? options_.what + " in memory" : file_of(options_)),
      connection_(options_.folder.empty() ? ":memory:" : place_,
                  SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE | SQLite::OPEN_NOMUTEX) {
  connection_.exec("PRAGMA locking_mode = EXCLUSIVE");
  connection_.exec("PRAGMA journal_mode = WAL");
  // Commits survive the process without waiting for a disk.
  connection_.exec("PRAGMA synchronous = NORMAL");
  connection_.exec("PRAGMA foreign_keys = ON");
  connection_.exec("PRAGMA temp_store = MEMORY");
  connection_.exec("PRAGMA cell_size_check = ON");
}

Error Database::failed_by(const std::exception& failure) {
  const Error why = database_error(place_, failure);
  if (why.code() == StatusCode::kDataLoss) return damaged_by(failure.what());
  if (options_.report) options_.report(why);
  return Error(why.code(), options_.what + " cannot be read or written");
}

Error Database::damaged_by(std::string_view how) {
  if (!is_damaged_.exchange(true) && options_.report) {
    options_.report(Error(StatusCode::kDataLoss, fmt::format("{}: {}", place_, how)));
  }
  return Error(StatusCode::kDataLoss, options_.what + " is damaged");
}

Error Database::report_damage(std::string_view how) {
  const std::lock_guard lock(mutex_);
  return damaged_by(how);
}

Status Database::prepare() {
  SQLite::Transaction transaction(connection_);
  const int found = connection_.execAndGet("PRAGMA user_version").getInt();
  if (found == options_.version) return check_whole(connection_, place_);
  if (found != 0) {
    return error(StatusCode::kUnimplemented, "{}: expected version {}, got {}", place_,
                 options_.version, found);
  }
  connection_.exec(options_.schema);
  connection_.exec(fmt::format("PRAGMA user_version = {}", options_.version));
  transaction.commit();
  return {};
}

Result<std::unique_ptr<Database>> Database::open(DatabaseOptions options) {
  if (!options.folder.empty()) {
    std::error_code failure;
    std::filesystem::create_directories(options.folder, failure);
    if (failure) {
      return error(StatusCode::kUnavailable, "expected a folder that can be made, got '{}': {}",
                   options.folder, failure.message());
    }
  }
  const std::string place = file_of(options);
  try {
    std::unique_ptr<Database> database(new Database(std::move(options)));
    if (const Status ready = database->prepare(); !ready) {
      return Unexpected(opening_error(place, ready.error()));
    }
    return database;
  } catch (const std::exception& failure) {
    return Unexpected(opening_error(place, database_error(place, failure)));
  }
}

}  // namespace kakeya::service
