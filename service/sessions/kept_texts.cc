#include "service/sessions/kept_texts.h"

#include <utility>

#include "base/status.h"
#include "service/sessions/database.h"

namespace kakeya::service {
namespace {

constexpr int kTextsVersion = 1;

constexpr const char* kTextsSchema = R"(
CREATE TABLE texts (
  key INTEGER PRIMARY KEY,
  id TEXT NOT NULL,
  owner TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  text BLOB NOT NULL,
  UNIQUE (owner, id));
)";

// The oldest text of the owner who has most of what there is too much of: who asks much loses
// texts of their own. Of equal owners the one who has the oldest text.
constexpr const char* kForgetOfMostTexts = R"(
DELETE FROM texts WHERE key = (
  SELECT MIN(key) FROM texts GROUP BY owner ORDER BY COUNT(*) DESC, MIN(key) LIMIT 1))";
constexpr const char* kForgetOfMostBytes = R"(
DELETE FROM texts WHERE key = (
  SELECT MIN(key) FROM texts GROUP BY owner ORDER BY SUM(bytes) DESC, MIN(key) LIMIT 1))";

Error no_such_text(const std::string& id) {
  return Error(StatusCode::kNotFound, "expected the id of what is kept, got '" + id + "'");
}

KeptTexts::Size size_in(SQLite::Database& connection) {
  SQLite::Statement statement(connection, "SELECT COUNT(*), COALESCE(SUM(bytes), 0) FROM texts");
  statement.executeStep();
  return {statement.getColumn(0).getInt64(), statement.getColumn(1).getInt64()};
}

}  // namespace

KeptTexts::KeptTexts(std::unique_ptr<Database> database,
                     std::int64_t most_texts,
                     std::int64_t most_bytes)
    : most_texts_(most_texts), most_bytes_(most_bytes), database_(std::move(database)) {}

KeptTexts::~KeptTexts() = default;

Result<std::unique_ptr<KeptTexts>> KeptTexts::open(const std::string& folder,
                                                   std::int64_t most_texts,
                                                   std::int64_t most_bytes,
                                                   ReportFailure report) {
  KAKEYA_ASSIGN_OR_RETURN(auto database, Database::open({.folder = folder,
                                                         .name = "texts.sqlite",
                                                         .what = "the store of responses",
                                                         .schema = kTextsSchema,
                                                         .version = kTextsVersion,
                                                         .report = std::move(report)}));
  return std::unique_ptr<KeptTexts>(new KeptTexts(std::move(database), most_texts, most_bytes));
}

Status KeptTexts::put(const std::string& owner, const std::string& id, const std::string& text) {
  const auto bytes = static_cast<std::int64_t>(text.size() + id.size() + owner.size());
  if (bytes > most_bytes_ || most_texts_ == 0) {
    return error(StatusCode::kResourceExhausted, "expected at most {} bytes to keep, got {}",
                 most_texts_ == 0 ? 0 : most_bytes_, bytes);
  }
  return database_->run([&](SQLite::Database& connection) -> Status {
    SQLite::Statement insert(
        connection, "INSERT OR IGNORE INTO texts (id, owner, bytes, text) VALUES (?, ?, ?, ?)");
    insert.bindNoCopy(1, id);
    insert.bindNoCopy(2, owner);
    insert.bind(3, bytes);
    insert.bindNoCopy(4, text.data(), static_cast<int>(text.size()));
    if (insert.exec() == 0) {
      return error(StatusCode::kFailedPrecondition, "expected a new id of what is kept, got '{}'",
                   id);
    }
    for (Size size = size_in(connection); size.texts > most_texts_ || size.bytes > most_bytes_;
         size = size_in(connection)) {
      connection.exec(size.texts > most_texts_ ? kForgetOfMostTexts : kForgetOfMostBytes);
    }
    return {};
  });
}

Result<std::string> KeptTexts::find(const std::string& owner, const std::string& id) {
  return database_->run([&](SQLite::Database& connection) -> Result<std::string> {
    SQLite::Statement statement(connection, "SELECT text FROM texts WHERE owner = ? AND id = ?");
    statement.bindNoCopy(1, owner);
    statement.bindNoCopy(2, id);
    if (!statement.executeStep()) return Unexpected(no_such_text(id));
    return statement.getColumn(0).getString();
  });
}

Status KeptTexts::remove(const std::string& owner, const std::string& id) {
  return database_->run([&](SQLite::Database& connection) -> Status {
    SQLite::Statement statement(connection, "DELETE FROM texts WHERE owner = ? AND id = ?");
    statement.bindNoCopy(1, owner);
    statement.bindNoCopy(2, id);
    if (statement.exec() == 0) return Unexpected(no_such_text(id));
    return {};
  });
}

Result<KeptTexts::Size> KeptTexts::size() {
  return database_->run(
      [](SQLite::Database& connection) -> Result<Size> { return size_in(connection); });
}

Error KeptTexts::report_damage(const std::string& id) {
  return database_->report_damage("the text '" + id + "' is not what was kept");
}

bool KeptTexts::is_damaged() const {
  return database_->is_damaged();
}

}  // namespace kakeya::service
