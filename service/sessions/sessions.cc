#include "service/sessions/sessions.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/random_id.h"
#include "base/status.h"
#include "service/answer_request.h"
#include "service/replica_name.h"

namespace kakeya::service {
namespace {

constexpr std::size_t kMostIdBytes = 128;
constexpr std::size_t kMostLabelBytes = 256;
constexpr std::size_t kMostStopIds = 1024;

// Closing waits so long for an operation whose client has just gone, and everybody for the pass of
// one whose client is known to have.
constexpr std::chrono::seconds kCloseWait{1};
constexpr std::chrono::seconds kEndWait{30};
constexpr std::chrono::milliseconds kLongestSweepPause{5000};
constexpr std::int64_t kMostSwept = 64;  // at a time

tl::unexpected<Refusal> refused(const Error& error) {
  return tl::unexpected(refusal_of(error));
}

tl::unexpected<Refusal> refused_field(const char* parameter, std::string message) {
  return tl::unexpected(Refusal{.message = std::move(message), .parameter = parameter});
}

// Text that may stand in a log and in a header.
bool is_printable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7f; });
}

}  // namespace

Outcome<void> check_session_id(const char* name, std::string_view id) {
  if (id.size() <= kMostIdBytes && is_printable(id)) return {};
  return refused_field(
      name, fmt::format("{}: expected at most {} printable characters without spaces, got {} bytes",
                        name, kMostIdBytes, id.size()));
}

SessionHold::SessionHold(Sessions& sessions, std::string owner, std::string id)
    : sessions_(sessions), owner_(std::move(owner)), id_(std::move(id)) {}

SessionHold::~SessionHold() {
  const std::lock_guard lock(sessions_.mutex_);
  sessions_.busy_.erase({owner_, id_});
  sessions_.changed_.notify_all();
}

void SessionHold::release_soon() {
  const std::lock_guard lock(sessions_.mutex_);
  sessions_.busy_[{owner_, id_}] = true;
  sessions_.changed_.notify_all();
}

SessionRun::~SessionRun() {
  ticket_.reset();
  if (hold_ != nullptr) hold_->release_soon();
}

Status SessionRun::take(std::vector<GeneratedToken>& tokens) {
  if (finished_) return {};
  Status taken = take_mail(tokens);
  if (!taken) finished_ = true;
  if (finished_) {
    ticket_.reset();
    hold_->release_soon();
    hold_.reset();
  }
  return taken;
}

Status SessionRun::keep(std::span<const TokenId> ids) {
  if (ids.empty()) return {};
  KAKEYA_TRY(catalogue_->set_tokens(hold_->owner(), hold_->id(), length_, ids));
  length_ += std::ssize(ids);
  return {};
}

Status SessionRun::take_mail(std::vector<GeneratedToken>& tokens) {
  if (mailbox_ == nullptr) {  // nothing is run
    KAKEYA_TRY(keep(appended_));
    finished_ = true;
    result_.tokens = length_;
    return {};
  }
  Mail mail = mailbox_->take();
  std::vector<TokenId> ids;
  for (const GeneratedToken& token : mail.tokens) ids.push_back(token.id);
  KAKEYA_TRY(keep(ids));
  std::ranges::move(mail.tokens, std::back_inserter(tokens));
  if (!mail.end) return {};
  if (!*mail.end) return Unexpected(mail.end->error());
  if (mailbox_->overflowed()) {
    return error(StatusCode::kCancelled, "the answer was not read as fast as it came");
  }
  KAKEYA_TRY(keep(appended_));
  finished_ = true;
  const GenerateResult& generated = ended_->generated;
  result_ = {.stop_reason = generated.stop_reason,
             .tokens = length_,
             .generated = std::ssize(generated.ids),
             .cached_tokens = mailbox_->cached(),
             .prompt_rows = generated.prefill_tokens,
             .rounds = std::ssize(generated.rounds),
             .drafted = generated.drafted,
             .accepted = generated.accepted,
             .queue_seconds = ended_->queue_seconds,
             .prefill_seconds = generated.prefill_seconds,
             .decode_seconds = generated.decode_seconds};
  return {};
}

Sessions::Sessions(Engine& engine,
                   Driver& driver,
                   const SessionsOptions& options,
                   std::size_t most_unread,
                   CacheScopes scopes)
    : engine_(engine),
      driver_(driver),
      options_(options),
      most_unread_(most_unread),
      scopes_(scopes) {}

Result<std::unique_ptr<Sessions>> Sessions::open(Engine& engine,
                                                 Driver& driver,
                                                 const SessionsOptions& options,
                                                 std::size_t most_unread,
                                                 CacheScopes scopes,
                                                 ReportFailure report) {
  std::unique_ptr<Sessions> sessions(new Sessions(engine, driver, options, most_unread, scopes));
  KAKEYA_ASSIGN_OR_RETURN(sessions->catalogue_,
                          Catalogue::open(options.folder, engine.model_fingerprint(),
                                          options.most_sessions, std::move(report)));
  if (options.idle_limit.count() > 0.0) {
    sessions->sweeper_ = std::thread([own = sessions.get()] { own->end_idle(); });
  }
  return sessions;
}

Sessions::~Sessions() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (sweeper_.joinable()) sweeper_.join();
}

Outcome<std::shared_ptr<SessionHold>> Sessions::hold(const std::string& owner,
                                                     const std::string& id,
                                                     std::chrono::milliseconds wait) {
  std::unique_lock lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  for (auto busy = busy_.find({owner, id}); busy != busy_.end(); busy = busy_.find({owner, id})) {
    const auto until = now + (busy->second ? std::chrono::milliseconds(kEndWait) : wait);
    if (changed_.wait_until(lock, until) == std::cv_status::no_timeout) continue;
    return tl::unexpected(Refusal{
        .status = StatusCode::kFailedPrecondition,
        .message = fmt::format("session '{}' is busy: expected one operation at a time", id),
        .code = kSessionBusy});
  }
  busy_.emplace(std::pair{owner, id}, false);
  return std::make_shared<SessionHold>(*this, owner, id);
}

Outcome<Sessions::Opened> Sessions::open_session(const std::string& owner, const std::string& id) {
  Opened opened;
  auto held = hold(owner, id);
  if (!held) return tl::unexpected(std::move(held).error());
  opened.hold = std::move(*held);
  auto row = catalogue_->find(owner, id);
  if (!row) return refused(row.error());
  opened.row = std::move(*row);
  auto options = options_of(opened.row);
  if (!options) return tl::unexpected(std::move(options).error());
  opened.options = *options;
  auto tokens = catalogue_->tokens(owner, id);
  if (!tokens) return refused(tokens.error());
  opened.tokens = std::move(*tokens);
  return opened;
}

Outcome<SessionOptions> Sessions::options_of(const SessionRow& row) const {
  auto options = session_options_of(engine_, row.mode);
  if (options) options->cache_scope = scopes_.of(row.owner);
  return options;
}

Outcome<void> Sessions::check_wish(const NewSession& wish) const {
  if (auto checked = check_session_id("session_id", wish.id); !checked) return checked;
  if (auto checked = check_session_id("parent", wish.parent); !checked) return checked;
  if (wish.label.size() > kMostLabelBytes) {
    return refused_field("label", fmt::format("label: expected at most {} bytes, got {}",
                                              kMostLabelBytes, wish.label.size()));
  }
  if (wish.stop_ids.size() > kMostStopIds) {
    return refused_field("stop_ids", fmt::format("stop_ids: expected at most {}, got {}",
                                                 kMostStopIds, wish.stop_ids.size()));
  }
  for (const TokenId id : wish.stop_ids) {
    if (id >= 0 && id < engine_.vocab_size()) continue;
    return refused_field("stop_ids", fmt::format("stop_ids: expected 0 to {}, got {}",
                                                 engine_.vocab_size() - 1, id));
  }
  return {};
}

Outcome<SessionRow> Sessions::create(const std::string& owner, const NewSession& wish) {
  if (auto sound = check_wish(wish); !sound) return tl::unexpected(std::move(sound).error());
  const auto options = session_options_of(engine_, wish.mode);
  if (!options) return tl::unexpected(options.error());
  const SessionRow row = {
      .id = wish.id.empty() ? random_id(id_prefix_of("sess-", options_.replica_name)) : wish.id,
      .owner = owner,
      .label = wish.label,
      .parent = wish.parent,
      .mode = wish.mode,
      .stop_ids = wish.stop_ids};
  if (const Status added = catalogue_->add(row); !added) return refused(added.error());
  return find(owner, row.id);
}

Outcome<SessionRow> Sessions::find(const std::string& owner, const std::string& id) {
  auto row = catalogue_->find(owner, id);
  if (!row) return refused(row.error());
  return std::move(*row);
}

Outcome<std::vector<SessionRow>> Sessions::list(const std::string& owner, std::int64_t most) {
  auto rows = catalogue_->list(owner, most);
  if (!rows) return refused(rows.error());
  return std::move(*rows);
}

Outcome<std::vector<TokenId>> Sessions::tokens(const std::string& owner, const std::string& id) {
  auto tokens = catalogue_->tokens(owner, id);
  if (!tokens) return refused(tokens.error());
  return std::move(*tokens);
}

Outcome<SessionFootprint> Sessions::footprint(const std::string& owner, const std::string& id) {
  const auto row = find(owner, id);
  if (!row) return tl::unexpected(row.error());
  const auto options = options_of(*row);
  if (!options) return tl::unexpected(options.error());
  const auto ids = tokens(owner, id);
  if (!ids) return tl::unexpected(ids.error());
  const CachedPrefix cached = engine_.cached_prefix(*ids, *options);
  return SessionFootprint{.cached_tokens = cached.tokens,
                          .memory_bytes = cached.bytes,
                          .disk_bytes = cached.disk_bytes};
}

Outcome<std::unique_ptr<SessionRun>> Sessions::run(Opened opened,
                                                   std::vector<TokenId> appended,
                                                   Request request,
                                                   std::function<void()> wake) {
  std::unique_ptr<SessionRun> run(new SessionRun);
  run->catalogue_ = catalogue_.get();
  run->length_ = std::ssize(opened.tokens);
  run->hold_ = std::move(opened.hold);
  request.prompt = std::move(opened.tokens);
  request.prompt.insert(request.prompt.end(), appended.begin(), appended.end());
  request.session = opened.options;
  run->appended_ = std::move(appended);
  run->mailbox_ = std::make_shared<Mailbox>(most_unread_, std::move(wake));
  // The last thing that the scheduler does with a request is to leave its rows in the prompt cache.
  const auto id =
      driver_.submit(std::move(request), run->mailbox_,
                     [ended = run->ended_, hold = run->hold_](const RequestResult& result) mutable {
                       *ended = result;
                       hold.reset();
                     });
  if (!id) return refused(id.error());
  run->ticket_ = std::make_unique<Ticket>(driver_, *id, run->mailbox_);
  return run;
}

Outcome<std::unique_ptr<SessionRun>> Sessions::append(const std::string& owner,
                                                      const std::string& id,
                                                      std::vector<TokenId> ids,
                                                      Request request,
                                                      std::function<void()> wake) {
  auto opened = open_session(owner, id);
  if (!opened) return tl::unexpected(std::move(opened).error());
  for (const TokenId each : ids) {
    if (each >= 0 && each < engine_.vocab_size()) continue;
    return refused_field("token_ids", fmt::format("token_ids: expected 0 to {}, got {}",
                                                  engine_.vocab_size() - 1, each));
  }
  // Without a prompt cache nothing would be left of what is run.
  if (ids.empty() || engine_.prompt_cache_statistics().limit_bytes == 0) {
    const std::int64_t context =
        opened->options.context > 0 ? opened->options.context : context_of(engine_);
    const std::int64_t length = std::ssize(opened->tokens) + std::ssize(ids);
    if (length > context) {
      return tl::unexpected(
          Refusal{.status = StatusCode::kResourceExhausted,
                  .message = fmt::format("context of {} tokens is exceeded: the session would have "
                                         "{} tokens",
                                         context, length)});
    }
    std::unique_ptr<SessionRun> run(new SessionRun);
    run->catalogue_ = catalogue_.get();
    run->length_ = std::ssize(opened->tokens);
    run->hold_ = std::move(opened->hold);
    run->appended_ = std::move(ids);
    return run;
  }
  request.generate = {.max_tokens = 0};
  return run(std::move(*opened), std::move(ids), std::move(request), std::move(wake));
}

Outcome<std::unique_ptr<SessionRun>> Sessions::generate(const std::string& owner,
                                                        const std::string& id,
                                                        Request request,
                                                        std::function<void()> wake) {
  auto opened = open_session(owner, id);
  if (!opened) return tl::unexpected(std::move(opened).error());
  if (opened->tokens.empty()) {
    return refused_field("session_id",
                         fmt::format("session '{}': expected tokens to go on from, got none", id));
  }
  auto& stop_ids = request.generate.stop_ids;
  stop_ids.insert(stop_ids.end(), opened->row.stop_ids.begin(), opened->row.stop_ids.end());
  return run(std::move(*opened), {}, std::move(request), std::move(wake));
}

Outcome<SessionRow> Sessions::truncate(const std::string& owner,
                                       const std::string& id,
                                       std::int64_t length) {
  auto held = hold(owner, id);
  if (!held) return tl::unexpected(std::move(held).error());
  if (const Status cut = catalogue_->set_tokens(owner, id, length, {}); !cut) {
    return refused(cut.error());
  }
  return find(owner, id);
}

Outcome<SessionRow> Sessions::fork(const std::string& owner,
                                   const std::string& id,
                                   const NewSession& wish,
                                   std::optional<std::int64_t> length) {
  if (auto sound = check_wish(wish); !sound) return tl::unexpected(std::move(sound).error());
  auto held = hold(owner, id);
  if (!held) return tl::unexpected(std::move(held).error());
  const auto parent = find(owner, id);
  if (!parent) return tl::unexpected(parent.error());
  const SessionRow row = {
      .id = wish.id.empty() ? random_id(id_prefix_of("sess-", options_.replica_name)) : wish.id,
      .owner = owner,
      .label = wish.label.empty() ? parent->label : wish.label,
      .parent = id,
      .mode = parent->mode,
      .stop_ids = parent->stop_ids};
  const Status added = catalogue_->add_fork(row, length.value_or(parent->tokens));
  if (!added) return refused(added.error());
  return find(owner, row.id);
}

Outcome<SessionRow> Sessions::close(const std::string& owner, const std::string& id) {
  auto held = hold(owner, id, kCloseWait);
  if (!held) return tl::unexpected(std::move(held).error());
  const auto row = catalogue_->find(owner, id);
  if (!row) return refused(row.error());
  free_rows(*row);
  if (const Status removed = catalogue_->remove(owner, id); !removed) {
    return refused(removed.error());
  }
  return *row;
}

// A session whose tokens or mode cannot be read has no rows that could be found.
void Sessions::free_rows(const SessionRow& row) {
  const auto options = options_of(row);
  const auto ids = catalogue_->tokens(row.owner, row.id);
  if (!options || !ids) return;
  // The parent goes on from what both have.
  std::int64_t keep = 0;
  if (const auto parent = catalogue_->tokens(row.owner, row.parent)) {
    keep = std::ranges::mismatch(*ids, *parent).in1 - ids->begin();
  }
  engine_.forget_prefix(*ids, keep, *options);
}

Outcome<void> Sessions::put(const std::string& owner,
                            const NewSession& wish,
                            std::span<const TokenId> ids) {
  auto held = hold(owner, wish.id);
  if (!held) return tl::unexpected(std::move(held).error());
  auto old = catalogue_->tokens(owner, wish.id);
  if (!old) {
    if (old.error().code() != StatusCode::kNotFound) return refused(old.error());
    if (const auto made = create(owner, wish); !made) return tl::unexpected(made.error());
    old = std::vector<TokenId>();
  }
  const auto common = std::ranges::mismatch(*old, ids).in1 - old->begin();
  const Status kept =
      catalogue_->set_tokens(owner, wish.id, common, ids.subspan(static_cast<std::size_t>(common)));
  if (!kept) return refused(kept.error());
  return {};
}

std::int64_t Sessions::count() {
  return catalogue_->count().value_or(0);
}

// Nobody waits for it, and a session that is busy is used.
void Sessions::end_idle() {
  const auto pause = std::min<std::chrono::milliseconds>(
      std::chrono::duration_cast<std::chrono::milliseconds>(options_.idle_limit) / 4 +
          std::chrono::milliseconds(1),
      kLongestSweepPause);
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, pause, [this] { return stopping_; })) {
    lock.unlock();
    const double before = unix_time() - options_.idle_limit.count();
    const auto unused = catalogue_->unused_since(before, kMostSwept);
    for (const SessionRow& each : unused.value_or(std::vector<SessionRow>())) {
      const auto held = hold(each.owner, each.id);
      if (!held) continue;
      const auto row = catalogue_->find(each.owner, each.id);
      if (!row || row->used >= before) continue;
      free_rows(*row);
      if (catalogue_->remove(each.owner, each.id)) ++expired_;
    }
    lock.lock();
  }
}

}  // namespace kakeya::service
