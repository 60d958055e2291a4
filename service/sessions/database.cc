#include "service/sessions/database.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/status.h"

namespace kakeya::service {
namespace {

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

}  // namespace

Database::Database(const std::string& path)
    : place_(path.empty() ? "the database in memory" : path),
      connection_(path.empty() ? ":memory:" : path,
                  SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE | SQLite::OPEN_NOMUTEX) {
  connection_.exec("PRAGMA locking_mode = EXCLUSIVE");
  connection_.exec("PRAGMA journal_mode = WAL");
  // Commits survive the process without waiting for a disk.
  connection_.exec("PRAGMA synchronous = NORMAL");
  connection_.exec("PRAGMA foreign_keys = ON");
  connection_.exec("PRAGMA temp_store = MEMORY");
  connection_.exec("PRAGMA cell_size_check = ON");
}

Error Database::error_of(const std::exception& failure) const {
  return database_error(place_, failure);
}

Result<std::unique_ptr<Database>> Database::open(const std::string& folder,
                                                 const std::string& name,
                                                 const char* schema,
                                                 int version) {
  std::string path;
  if (!folder.empty()) {
    std::error_code failure;
    std::filesystem::create_directories(folder, failure);
    if (failure) {
      return error(StatusCode::kUnavailable, "expected a folder that can be made, got '{}': {}",
                   folder, failure.message());
    }
    path = (std::filesystem::path(folder) / name).string();
  }
  try {
    std::unique_ptr<Database> database(new Database(path));
    KAKEYA_TRY(database->run([&](SQLite::Database& connection) -> Status {
      const int found = connection.execAndGet("PRAGMA user_version").getInt();
      if (found != 0 && found != version) {
        return error(StatusCode::kUnimplemented, "{}: expected version {}, got {}", path, version,
                     found);
      }
      if (found == version) return {};
      connection.exec(schema);
      connection.exec(fmt::format("PRAGMA user_version = {}", version));
      return {};
    }));
    return database;
  } catch (const std::exception& failure) {
    return Unexpected(database_error(path, failure));
  }
}

}  // namespace kakeya::service
