// Sessions that clients name: tokens in, tokens out, over the scheduler that every request shares.
// A session is a row of the catalogue; its KV cache is what the prompt cache has of its tokens, so
// an idle session takes no memory that others need, and one whose rows were given up goes on all
// the same: they are run again.
//
//   create -> append, generate, fork, truncate ... -> close
//
// One operation of a session at a time; others of it are refused meanwhile ("session_busy").
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "kakeya/engine.h"
#include "kakeya/scheduler.h"
#include "service/cache_scope.h"
#include "service/driver.h"
#include "service/mailbox.h"
#include "service/refusal.h"
#include "service/sessions/catalogue.h"
#include "service/sessions/sessions_options.h"
#include "service/ticket.h"

namespace kakeya::service {

// The code of a Refusal for a session that does something else.
inline constexpr const char* kSessionBusy = "session_busy";

// Checks an id that a client gives a session: it will stand in logs and in headers. Errors:
// kInvalidArgument, naming `name`.
Outcome<void> check_session_id(const char* name, std::string_view id);

struct NewSession {
  std::string id = {};  // empty: made of "sess-", the replica's name and random digits
  std::string label = {};
  std::string parent = {};  // for people; a fork has its own
  SessionMode mode = {};
  std::vector<TokenId> stop_ids = {};
};

// The account of an operation, for its client.
struct SessionRunResult {
  StopReason stop_reason = StopReason::kMaxTokens;
  std::int64_t tokens = 0;         // that the session has now
  std::int64_t generated = 0;      // tokens, with the stop id
  std::int64_t cached_tokens = 0;  // taken over from the KV cache
  std::int64_t prompt_rows = 0;    // tokens that were run before the first new one
  std::int64_t rounds = 0;         // passes of the target
  std::int64_t drafted = 0;
  std::int64_t accepted = 0;
  double queue_seconds = 0.0;
  double prefill_seconds = 0.0;
  double decode_seconds = 0.0;
};

class Sessions;

// The right to change a session, until it goes: when the client is done with an operation, and the
// scheduler with its request.
class SessionHold {
 public:
  SessionHold(Sessions& sessions, std::string owner, std::string id);
  ~SessionHold();

  // The client is done: whoever comes waits for the scheduler, which is quick.
  void release_soon();

  SessionHold(const SessionHold&) = delete;
  SessionHold& operator=(const SessionHold&) = delete;

  const std::string& owner() const { return owner_; }
  const std::string& id() const { return id_; }

 private:
  Sessions& sessions_;
  const std::string owner_;
  const std::string id_;
};

// Tokens of a session that are run, or generated. One thread at a time. If it goes before it has
// finished, what take() has given stays in the session, and no more.
class SessionRun {
 public:
  ~SessionRun();
  SessionRun(const SessionRun&) = delete;
  SessionRun& operator=(const SessionRun&) = delete;

  // Adds what has come since, which is in the catalogue when this returns. Never waits. Errors:
  // that of the request, if one ended it; as Catalogue::set_tokens().
  Status take(std::vector<GeneratedToken>& tokens);
  bool finished() const { return finished_; }
  // Once it has finished.
  const SessionRunResult& result() const { return result_; }

 private:
  friend class Sessions;
  SessionRun() = default;
  Status take_mail(std::vector<GeneratedToken>& tokens);
  // Makes `ids` the next tokens of the session.
  Status keep(std::span<const TokenId> ids);

  Catalogue* catalogue_ = nullptr;
  std::shared_ptr<SessionHold> hold_;
  std::int64_t length_ = 0;             // of the session's tokens in the catalogue
  std::vector<TokenId> appended_ = {};  // that become the session's when they were run
  std::shared_ptr<Mailbox> mailbox_;    // null: nothing is run
  std::shared_ptr<RequestResult> ended_ = std::make_shared<RequestResult>();
  std::unique_ptr<Ticket> ticket_;
  bool finished_ = false;
  SessionRunResult result_;
};

// The keys and values that are held of a session.
struct SessionFootprint {
  std::int64_t cached_tokens = 0;  // that need not be run to go on
  std::uint64_t memory_bytes = 0;  // of their keys and values
  std::uint64_t disk_bytes = 0;    // the same, of files
};

// Thread-safe. Every call names the owner, who sees sessions of their own alone. Errors of all:
// kNotFound for a session that is not open; those of Catalogue.
class Sessions {
 public:
  // Engine and driver must outlive it. `most_unread`: tokens of a generation that its reader may
  // leave unread. `scopes`: who shares rows with whom. `report`: of the catalogue. Errors: as
  // Catalogue::open().
  static Result<std::unique_ptr<Sessions>> open(Engine& engine,
                                                Driver& driver,
                                                const SessionsOptions& options,
                                                std::size_t most_unread,
                                                CacheScopes scopes,
                                                ReportFailure report = {});
  ~Sessions();
  Sessions(const Sessions&) = delete;
  Sessions& operator=(const Sessions&) = delete;

  // Errors: as session_options_of(); kInvalidArgument for an id, a label or stop ids that are none;
  // kResourceExhausted beyond SessionsOptions::most_sessions.
  Outcome<SessionRow> create(const std::string& owner, const NewSession& wish);
  Outcome<SessionRow> find(const std::string& owner, const std::string& id);
  Outcome<std::vector<SessionRow>> list(const std::string& owner, std::int64_t most);
  Outcome<std::vector<TokenId>> tokens(const std::string& owner, const std::string& id);
  Outcome<SessionFootprint> footprint(const std::string& owner, const std::string& id);

  // Runs tokens behind the session's, which has them when the run has finished. `wake` as
  // Stream::Wake. Errors: kInvalidArgument for ids outside the vocabulary; kResourceExhausted
  // beyond the context; the session is as before then.
  Outcome<std::unique_ptr<SessionRun>> append(const std::string& owner,
                                              const std::string& id,
                                              std::vector<TokenId> ids,
                                              Request request,
                                              std::function<void()> wake);
  // Goes on from the session's tokens. Of `request` prompt, session and callbacks are replaced.
  // Errors: kInvalidArgument for a session without tokens; as Driver::submit().
  Outcome<std::unique_ptr<SessionRun>> generate(const std::string& owner,
                                                const std::string& id,
                                                Request request,
                                                std::function<void()> wake);
  // Forgets the tokens from `length` on.
  Outcome<SessionRow> truncate(const std::string& owner,
                               const std::string& id,
                               std::int64_t length);
  // Another session of the same owner with the same mode and the first `length` tokens; none: all.
  Outcome<SessionRow> fork(const std::string& owner,
                           const std::string& id,
                           const NewSession& wish,
                           std::optional<std::int64_t> length);
  // Ends a session, and frees what nobody else's text has of its keys and values. Returns it as it
  // was.
  Outcome<SessionRow> close(const std::string& owner, const std::string& id);

  // Makes `ids` the tokens of the owner's session `id`, which is made if it is not there: for
  // clients that send whole conversations and name them.
  Outcome<void> put(const std::string& owner, const NewSession& wish, std::span<const TokenId> ids);

  // Sessions that are open, and those that have ended because nobody used them.
  std::int64_t count();
  std::int64_t expired() const { return expired_; }
  // True once the catalogue was found damaged.
  bool is_damaged() const { return catalogue_->is_damaged(); }

 private:
  friend class SessionHold;
  Sessions(Engine& engine,
           Driver& driver,
           const SessionsOptions& options,
           std::size_t most_unread,
           CacheScopes scopes);

  struct Opened {
    std::shared_ptr<SessionHold> hold;
    SessionRow row;
    SessionOptions options;
    std::vector<TokenId> tokens;
  };
  // The right to change a session, there or not. Errors: "session_busy", after waiting so long for
  // a client that is not done.
  Outcome<std::shared_ptr<SessionHold>> hold(const std::string& owner,
                                             const std::string& id,
                                             std::chrono::milliseconds wait = {});
  Outcome<Opened> open_session(const std::string& owner, const std::string& id);
  Outcome<std::unique_ptr<SessionRun>> run(Opened opened,
                                           std::vector<TokenId> appended,
                                           Request request,
                                           std::function<void()> wake);
  Outcome<void> check_wish(const NewSession& wish) const;
  // Errors: as session_options_of().
  Outcome<SessionOptions> options_of(const SessionRow& row) const;
  void free_rows(const SessionRow& row);
  void end_idle();

  Engine& engine_;
  Driver& driver_;
  const SessionsOptions options_;
  const std::size_t most_unread_;
  const CacheScopes scopes_;
  std::unique_ptr<Catalogue> catalogue_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // By owner and id; whether its client is done. Under mutex_.
  std::map<std::pair<std::string, std::string>, bool> busy_;
  bool stopping_ = false;  // under mutex_
  std::atomic<std::int64_t> expired_ = 0;
  std::thread sweeper_;  // ends sessions that nobody uses; last: it uses the others
};

}  // namespace kakeya::service
