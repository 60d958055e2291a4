// Where jobs and results lie: a folder that both sides see, or a git repository. Nothing that lies
// there is believed: who reads looks at signatures.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "envelope.h"
#include "kakeya/status.h"

namespace kakeya::bridge {

inline constexpr std::size_t kMostEntries = 1000;  // of a list; the rest waits

// One thread at a time.
class Mailbox {
 public:
  struct Entry {
    std::string name = {};     // an id, unless there is a problem
    std::string version = {};  // another one for another text of that name
    std::string problem = {};  // why it is not read, in one line; empty: none
  };

  Mailbox() = default;
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;
  virtual ~Mailbox() = default;

  // In the order of their names. Errors: kUnavailable if the place cannot be reached.
  virtual Result<std::vector<Entry>> list(Kind kind) = 0;
  // At most most_bytes(kind). Errors: kNotFound; kFailedPrecondition for what is no plain file;
  // kResourceExhausted for one that is longer, looked at before it is read; kUnavailable.
  virtual Result<std::string> read(Kind kind, const std::string& id) = 0;
  // In the place of what has the name. Errors: kUnavailable.
  virtual Status put(Kind kind, const std::string& id, const std::string& text) = 0;
  // Removes an entry; one that is gone already is no error. Errors: kUnavailable.
  virtual Status remove(Kind kind, const std::string& id) = 0;
};

// A URL, or HOST:PATH: a colon comes before any slash, as git has it.
bool is_address(const std::string& where);
// WHERE by its spelling alone: an address, or a name that ends with .git, is a git remote, all else
// a folder. `stop`: as run_child() has it. Errors: kNotFound for a folder that is not
// there; kInvalidArgument for a remote that is none; kNotFound without git.
Result<std::unique_ptr<Mailbox>> open_mailbox(const std::string& where,
                                              const std::atomic<bool>* stop = nullptr);

// The name of the place `where` from any folder.
std::string absolute_place(const std::string& where);

// Files jobs/ID.json and results/ID.json of a folder.
Result<std::unique_ptr<Mailbox>> open_folder_mailbox(const std::string& path);
// A branch kakeya-bridge/jobs/ID or kakeya-bridge/results/ID each, with one commit of one file.
// Nothing is checked out, so nothing of a branch has an effect but its file's bytes. Hooks of a
// repository on this machine do not run.
Result<std::unique_ptr<Mailbox>> open_git_mailbox(const std::string& remote,
                                                  const std::atomic<bool>* stop);

}  // namespace kakeya::bridge
