#include "service/sessions/catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "base/status.h"
#include "service/replica_name.h"
#include "service/sessions/database.h"

namespace kakeya::service {
namespace {

// The version of the tables below, in the file's user_version.
constexpr int kSchemaVersion = 1;

constexpr const char* kSchema = R"(
CREATE TABLE sessions (
  key INTEGER PRIMARY KEY,
  id TEXT NOT NULL,
  owner TEXT NOT NULL,
  model TEXT NOT NULL,
  label TEXT NOT NULL,
  parent TEXT NOT NULL,
  mode TEXT NOT NULL,
  stop_ids BLOB NOT NULL,
  tokens INTEGER NOT NULL,
  made REAL NOT NULL,
  used REAL NOT NULL,
  UNIQUE (owner, id, model));
CREATE INDEX sessions_by_use ON sessions (model, used);
CREATE TABLE session_tokens (
  session INTEGER NOT NULL REFERENCES sessions ON DELETE CASCADE,
  begin INTEGER NOT NULL,
  ids BLOB NOT NULL,
  PRIMARY KEY (session, begin)) WITHOUT ROWID;
)";

constexpr const char* kColumns = "id, owner, label, parent, mode, stop_ids, tokens, made, used";

std::vector<TokenId> ids_of(const SQLite::Column& blob) {
  std::vector<TokenId> ids(static_cast<std::size_t>(blob.getBytes()) / sizeof(TokenId));
  if (!ids.empty()) std::memcpy(ids.data(), blob.getBlob(), ids.size() * sizeof(TokenId));
  return ids;
}

// The statement must have ended before the ids go.
void bind_ids(SQLite::Statement& statement, int index, std::span<const TokenId> ids) {
  // A null pointer would be NULL.
  const void* const data = ids.empty() ? static_cast<const void*>("") : ids.data();
  statement.bindNoCopy(index, data, static_cast<int>(ids.size_bytes()));
}

Result<SessionRow> row_of(const SQLite::Statement& statement) {
  SessionRow row;
  row.id = statement.getColumn(0).getString();
  row.owner = statement.getColumn(1).getString();
  row.label = statement.getColumn(2).getString();
  row.parent = statement.getColumn(3).getString();
  KAKEYA_ASSIGN_OR_RETURN(row.mode, parse_mode(statement.getColumn(4).getString()));
  row.stop_ids = ids_of(statement.getColumn(5));
  row.tokens = statement.getColumn(6).getInt64();
  row.made = statement.getColumn(7).getDouble();
  row.used = statement.getColumn(8).getDouble();
  return row;
}

Result<std::vector<SessionRow>> rows_of(SQLite::Statement& statement) {
  std::vector<SessionRow> rows;
  while (statement.executeStep()) {
    KAKEYA_ASSIGN_OR_RETURN(auto row, row_of(statement));
    rows.push_back(std::move(row));
  }
  return rows;
}

Error no_such_session(const std::string& id) {
  return Error(
      StatusCode::kNotFound,
      fmt::format("expected the id of a session that is open, got '{}'{}", id, made_by(id)));
}

// Pieces of a text are whole where each begins at the end of the one before.
Error damaged_tokens(const std::string& id) {
  return Error(StatusCode::kDataLoss, fmt::format("the tokens of session '{}' are not whole", id));
}

Status check_length(std::int64_t length, std::int64_t most) {
  if (length >= 0 && length <= most) return {};
  return invalid_argument("length: expected 0 to {}, got {}", most, length);
}

// The tables as sessions of one model see them, through the connection of one call.
struct Tables {
  SQLite::Database& database;
  const std::string& model;

  // The session's key and its count of tokens; nothing: there is none.
  std::optional<std::pair<std::int64_t, std::int64_t>> find(const std::string& owner,
                                                            const std::string& id) const {
    SQLite::Statement statement(
        database, "SELECT key, tokens FROM sessions WHERE owner = ? AND id = ? AND model = ?");
    statement.bindNoCopy(1, owner);
    statement.bindNoCopy(2, id);
    statement.bindNoCopy(3, model);
    if (!statement.executeStep()) return {};
    return std::pair{statement.getColumn(0).getInt64(), statement.getColumn(1).getInt64()};
  }

  // Adds a session without tokens. Errors: as Catalogue::add().
  Status add(const SessionRow& row, std::int64_t most_sessions) const {
    SQLite::Statement owned(database,
                            "SELECT COUNT(*) FROM sessions WHERE owner = ? AND model = ?");
    owned.bindNoCopy(1, row.owner);
    owned.bindNoCopy(2, model);
    owned.executeStep();
    if (owned.getColumn(0).getInt64() >= most_sessions) {
      return error(StatusCode::kResourceExhausted,
                   "expected at most {} open sessions, got another one: end one first",
                   most_sessions);
    }
    if (find(row.owner, row.id)) {
      return error(StatusCode::kFailedPrecondition, "expected the id of no session, got '{}'",
                   row.id);
    }
    SQLite::Statement insert(
        database,
        "INSERT INTO sessions (id, owner, model, label, parent, mode, stop_ids, "
        "tokens, made, used) VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?, ?)");
    insert.bindNoCopy(1, row.id);
    insert.bindNoCopy(2, row.owner);
    insert.bindNoCopy(3, model);
    insert.bindNoCopy(4, row.label);
    insert.bindNoCopy(5, row.parent);
    insert.bind(6, mode_text(row.mode));
    bind_ids(insert, 7, row.stop_ids);
    const double now = unix_time();
    insert.bind(8, now);
    insert.bind(9, now);
    insert.exec();
    return {};
  }

  void put_piece(std::int64_t session, std::int64_t begin, std::span<const TokenId> ids) const {
    SQLite::Statement statement(database, "REPLACE INTO session_tokens VALUES (?, ?, ?)");
    statement.bind(1, session);
    statement.bind(2, begin);
    bind_ids(statement, 3, ids);
    statement.exec();
  }

  struct Piece {
    std::int64_t begin = 0;
    std::vector<TokenId> ids = {};

    std::int64_t end() const { return begin + std::ssize(ids); }
  };
  // The piece that has the token before `end`; an empty one if there is none.
  Piece piece_before(std::int64_t session, std::int64_t end) const {
    SQLite::Statement statement(database,
                                "SELECT begin, ids FROM session_tokens WHERE session = ? AND "
                                "begin < ? ORDER BY begin DESC LIMIT 1");
    statement.bind(1, session);
    statement.bind(2, end);
    if (!statement.executeStep()) return {};
    return {statement.getColumn(0).getInt64(), ids_of(statement.getColumn(1))};
  }

  // Cuts the session's tokens, then adds these. Errors: kDataLoss.
  Status set_tokens(std::int64_t session,
                    const std::string& id,
                    std::int64_t length,
                    std::span<const TokenId> ids) const {
    SQLite::Statement cut(database, "DELETE FROM session_tokens WHERE session = ? AND begin >= ?");
    cut.bind(1, session);
    cut.bind(2, length);
    cut.exec();
    Piece piece = piece_before(session, length);
    if (piece.end() < length) return Unexpected(damaged_tokens(id));
    const bool shortened = piece.end() > length;
    piece.ids.resize(static_cast<std::size_t>(length - piece.begin));
    if (piece.ids.size() >= Catalogue::kPieceTokens) {
      if (shortened) put_piece(session, piece.begin, piece.ids);
      piece = {.begin = length};
    }
    const std::size_t added = ids.size();
    while (!ids.empty()) {
      const std::size_t room = std::min(ids.size(), Catalogue::kPieceTokens - piece.ids.size());
      piece.ids.insert(piece.ids.end(), ids.begin(), ids.begin() + static_cast<std::int64_t>(room));
      ids = ids.subspan(room);
      put_piece(session, piece.begin, piece.ids);
      piece = {.begin = piece.end()};
    }
    if (added == 0 && shortened && !piece.ids.empty()) put_piece(session, piece.begin, piece.ids);
    SQLite::Statement count(database, "UPDATE sessions SET tokens = ?, used = ? WHERE key = ?");
    count.bind(1, length + static_cast<std::int64_t>(added));
    count.bind(2, unix_time());
    count.bind(3, session);
    count.exec();
    return {};
  }
};

}  // namespace

double unix_time() {
  const std::chrono::duration<double> since = std::chrono::system_clock::now().time_since_epoch();
  return since.count();
}

Catalogue::Catalogue(std::unique_ptr<Database> database,
                     std::string model,
                     std::int64_t most_sessions)
    : model_(std::move(model)), most_sessions_(most_sessions), database_(std::move(database)) {}

Catalogue::~Catalogue() = default;

Result<std::unique_ptr<Catalogue>> Catalogue::open(const std::string& folder,
                                                   std::string model,
                                                   std::int64_t most_sessions,
                                                   ReportFailure report) {
  KAKEYA_ASSIGN_OR_RETURN(auto database, Database::open({.folder = folder,
                                                         .name = "sessions.sqlite",
                                                         .what = "the catalogue of sessions",
                                                         .schema = kSchema,
                                                         .version = kSchemaVersion,
                                                         .report = std::move(report)}));
  return std::unique_ptr<Catalogue>(
      new Catalogue(std::move(database), std::move(model), most_sessions));
}

Status Catalogue::add(const SessionRow& row) {
  return database_->run([&](SQLite::Database& connection) -> Status {
    return Tables{connection, model_}.add(row, most_sessions_);
  });
}

Status Catalogue::add_fork(const SessionRow& row, std::int64_t length) {
  return database_->run([&](SQLite::Database& connection) -> Status {
    const Tables tables{connection, model_};
    const auto parent = tables.find(row.owner, row.parent);
    if (!parent) return Unexpected(no_such_session(row.parent));
    KAKEYA_TRY(check_length(length, parent->second));
    KAKEYA_TRY(tables.add(row, most_sessions_));
    const std::int64_t key = connection.getLastInsertRowid();
    SQLite::Statement copy(connection,
                           "INSERT INTO session_tokens SELECT ?, begin, ids FROM session_tokens "
                           "WHERE session = ? AND begin < ?");
    copy.bind(1, key);
    copy.bind(2, parent->first);
    copy.bind(3, length);
    copy.exec();
    KAKEYA_TRY(tables.set_tokens(key, row.id, length, {}));
    return {};
  });
}

Result<SessionRow> Catalogue::find(const std::string& owner, const std::string& id) {
  return database_->run([&](SQLite::Database& connection) -> Result<SessionRow> {
    SQLite::Statement statement(
        connection,
        fmt::format("SELECT {} FROM sessions WHERE owner = ? AND id = ? AND model = ?", kColumns));
    statement.bindNoCopy(1, owner);
    statement.bindNoCopy(2, id);
    statement.bindNoCopy(3, model_);
    if (!statement.executeStep()) return Unexpected(no_such_session(id));
    return row_of(statement);
  });
}

Result<std::vector<SessionRow>> Catalogue::list(const std::string& owner, std::int64_t most) {
  return database_->run([&](SQLite::Database& connection) -> Result<std::vector<SessionRow>> {
    SQLite::Statement statement(
        connection,
        fmt::format("SELECT {} FROM sessions WHERE owner = ? AND model = ? ORDER BY used DESC, key "
                    "DESC LIMIT ?",
                    kColumns));
    statement.bindNoCopy(1, owner);
    statement.bindNoCopy(2, model_);
    statement.bind(3, most);
    return rows_of(statement);
  });
}

Result<std::vector<TokenId>> Catalogue::tokens(const std::string& owner, const std::string& id) {
  return database_->run([&](SQLite::Database& connection) -> Result<std::vector<TokenId>> {
    const Tables tables{connection, model_};
    const auto session = tables.find(owner, id);
    if (!session) return Unexpected(no_such_session(id));
    SQLite::Statement statement(
        connection, "SELECT begin, ids FROM session_tokens WHERE session = ? ORDER BY begin");
    statement.bind(1, session->first);
    std::vector<TokenId> tokens;
    while (statement.executeStep()) {
      if (statement.getColumn(0).getInt64() != std::ssize(tokens)) {
        return Unexpected(damaged_tokens(id));
      }
      const std::vector<TokenId> piece = ids_of(statement.getColumn(1));
      tokens.insert(tokens.end(), piece.begin(), piece.end());
    }
    if (std::ssize(tokens) != session->second) return Unexpected(damaged_tokens(id));
    return tokens;
  });
}

Status Catalogue::set_tokens(const std::string& owner,
                             const std::string& id,
                             std::int64_t length,
                             std::span<const TokenId> ids) {
  return database_->run([&](SQLite::Database& connection) -> Status {
    const Tables tables{connection, model_};
    const auto session = tables.find(owner, id);
    if (!session) return Unexpected(no_such_session(id));
    KAKEYA_TRY(check_length(length, session->second));
    KAKEYA_TRY(tables.set_tokens(session->first, id, length, ids));
    return {};
  });
}

Status Catalogue::remove(const std::string& owner, const std::string& id) {
  return database_->run([&](SQLite::Database& connection) -> Status {
    SQLite::Statement statement(connection,
                                "DELETE FROM sessions WHERE owner = ? AND id = ? AND model = ?");
    statement.bindNoCopy(1, owner);
    statement.bindNoCopy(2, id);
    statement.bindNoCopy(3, model_);
    if (statement.exec() == 0) return Unexpected(no_such_session(id));
    return {};
  });
}

Result<std::vector<SessionRow>> Catalogue::unused_since(double before, std::int64_t most) {
  return database_->run([&](SQLite::Database& connection) -> Result<std::vector<SessionRow>> {
    SQLite::Statement statement(
        connection,
        fmt::format("SELECT {} FROM sessions WHERE model = ? AND used < ? ORDER BY used LIMIT ?",
                    kColumns));
    statement.bindNoCopy(1, model_);
    statement.bind(2, before);
    statement.bind(3, most);
    return rows_of(statement);
  });
}

Result<std::int64_t> Catalogue::count() {
  return database_->run([&](SQLite::Database& connection) -> Result<std::int64_t> {
    SQLite::Statement statement(connection, "SELECT COUNT(*) FROM sessions WHERE model = ?");
    statement.bindNoCopy(1, model_);
    statement.executeStep();
    return statement.getColumn(0).getInt64();
  });
}

bool Catalogue::is_damaged() const {
  return database_->is_damaged();
}

}  // namespace kakeya::service
