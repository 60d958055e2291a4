// The file of a conversation, which other processes may write too.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <string>

#include "kakeya/status.h"

namespace kakeya::cli {

// Writes the file only while it is the one that was read, or written last, here: of two processes
// that go on from one conversation, neither loses a turn. One thread at a time.
class SessionFile {
 public:
  // No file if `path` is empty.
  explicit SessionFile(std::string path) : path_(std::move(path)) {}

  // Where the conversation is kept; replace() may change it.
  const std::string& path() const { return path_; }

  // Call before reading: what is there now is what may be replaced. Whether there is anything.
  bool look();

  // Checks that replace() could begin. Errors: kUnavailable where the folder takes no new file, or
  // the path names what is no regular file.
  Status check_writable() const;

  // Lets `write` put the conversation at a path. If somebody else has written the file since
  // look(), that is the next free name (FILE.2, FILE.3, ...), where the conversation stays from
  // then on. Errors: those of `write`; kFailedPrecondition, which says where the conversation
  // is now.
  Status replace(const std::function<Status(const std::string& path)>& write);

  // Removes the file. Errors: kFailedPrecondition if somebody else has written it since look(),
  // kUnavailable if the folder refuses.
  Status remove();

 private:
  // The identity that tells a file from another that takes its place.
  struct Identity {
    bool exists = false;
    dev_t device = 0;
    ino_t inode = 0;
    off_t size = 0;
    std::int64_t seconds = 0;      // of the last change
    std::int64_t nanoseconds = 0;  // beyond those
    bool operator==(const Identity&) const = default;
  };

  Identity identity() const;

  std::string path_;
  Identity seen_;
};

}  // namespace kakeya::cli
