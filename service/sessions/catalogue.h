// The catalogue of sessions: who has which, and the tokens of each, in SQLite. With a folder it
// survives its process (database.h).
//
//   sessions        id, owner, model, label, parent, mode, stop ids, token count, made, used
//   session_tokens  pieces of a session's tokens, in order
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kakeya/status.h"
#include "kakeya/types.h"
#include "service/sessions/database.h"
#include "service/sessions/session_mode.h"

namespace kakeya::service {

// The time by which sessions are made and used, in seconds.
double unix_time();

struct SessionRow {
  std::string id;
  std::string owner;        // the name of a key, or an address
  std::string label = {};   // the client's, for people
  std::string parent = {};  // the session that it was forked from; empty: none
  SessionMode mode = {};
  std::vector<TokenId> stop_ids = {};  // beside the model's
  std::int64_t tokens = 0;             // how many it has
  double made = 0.0;                   // Unix time, seconds
  double used = 0.0;                   // when something of it changed
};

// Thread-safe. Errors of all calls, beside those named: as Database::run(). Nothing has changed
// then.
class Catalogue {
 public:
  // Tokens of a piece before the next one begins: what one more token rewrites at most.
  static constexpr std::size_t kPieceTokens = 1024;

  // Opens the catalogue of a folder, which is made if it is not there; in memory if `folder` is
  // empty. Sessions of other models than `model` (Engine::model_fingerprint) stay as they are and
  // are not shown. `most_sessions`: of one owner. `report`: DatabaseOptions::report. Errors: as
  // Database::open().
  static Result<std::unique_ptr<Catalogue>> open(const std::string& folder,
                                                 std::string model,
                                                 std::int64_t most_sessions,
                                                 ReportFailure report = {});
  ~Catalogue();
  Catalogue(const Catalogue&) = delete;
  Catalogue& operator=(const Catalogue&) = delete;

  // Adds a session without tokens. Errors: kResourceExhausted if its owner has as many as one may
  // have: nobody else's is given up; kFailedPrecondition if the owner has one of this id.
  Status add(const SessionRow& row);
  // Adds a session with the first `length` tokens of another one of the same owner, which
  // row.parent names. Errors: as add(); kNotFound; kInvalidArgument for a length that it does not
  // have.
  Status add_fork(const SessionRow& row, std::int64_t length);
  // The owner's session. Errors: kNotFound; somebody else's, or one that has ended, is not told
  // apart.
  Result<SessionRow> find(const std::string& owner, const std::string& id);
  // At most `most` of the owner's sessions, those used last first.
  Result<std::vector<SessionRow>> list(const std::string& owner, std::int64_t most);
  Result<std::vector<TokenId>> tokens(const std::string& owner, const std::string& id);
  // Makes the session's tokens the first `length` of those it has, then `ids`. Errors: kNotFound;
  // kInvalidArgument for a length that it does not have.
  Status set_tokens(const std::string& owner,
                    const std::string& id,
                    std::int64_t length,
                    std::span<const TokenId> ids);
  // Errors: kNotFound.
  Status remove(const std::string& owner, const std::string& id);
  // Sessions, of all owners, that were not used since `before` (Unix time), at most `most`.
  Result<std::vector<SessionRow>> unused_since(double before, std::int64_t most);
  // Sessions of this model, of all owners.
  Result<std::int64_t> count();

  // True once damage was found: sessions may be gone.
  bool is_damaged() const;

 private:
  Catalogue(std::unique_ptr<Database> database, std::string model, std::int64_t most_sessions);

  const std::string model_;
  const std::int64_t most_sessions_;
  std::unique_ptr<Database> database_;
};

}  // namespace kakeya::service
