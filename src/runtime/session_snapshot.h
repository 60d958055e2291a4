// The form of a session on disk: sections of a snapshot file (docs/formats/session.md). Restoring
// checks everything first and changes the session last.
#pragma once

#include <string>
#include <string_view>

#include "decode/timeline.h"
#include "formats/snapshot_file.h"
#include "kakeya/options.h"
#include "kakeya/status.h"
#include "runtime/session_parts.h"

namespace kakeya {

// The most bytes of a caller's note.
inline constexpr std::size_t kMaxSessionNoteBytes = std::size_t{16} << 20;

// The identity of the things that made a session's rows, as numbers in text: of all weights, of the
// texts' tokens.
struct SessionIdentity {
  std::string model;
  std::string drafter;
  std::string projection;
  std::string tokenizer;
  std::string chat_template;
};

// The name of SessionOptions::cache_scope in the keys of the prompt cache.
inline constexpr const char* kScopeName = "scope";

// The key that must be equal for a session to be restored: the layout of the sections, the identity
// of what made the rows, and how they are kept. A file's key has the model's tables as well
// (TableIdentity).
SnapshotKey session_key(const SessionIdentity& identity,
                        Compute compute,
                        std::string_view backend,
                        const TimelinePlan& plan);

// Errors: of SnapshotWriter; kInvalidArgument for a note that is too long. The session and, but for
// an error that says otherwise, the old file are unchanged then.
Status write_session(const std::string& path,
                     const SnapshotKey& key,
                     const SessionParts& parts,
                     std::string_view note);

// Replaces what the session holds; returns the note. Errors: of SnapshotFile, kFailedPrecondition
// for another key, kDataLoss for sections that no session of this key has, kResourceExhausted for
// memory that a fork needs; the session is unchanged then. Each names the path.
Result<std::string> read_session(const std::string& path,
                                 const SnapshotKey& key,
                                 const SessionParts& parts);

}  // namespace kakeya
