// The journal of a run of needles: a file to which a line is added before and after each reply, so
// that a run that ended early goes on where it was.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "eval/niah/niah_eval.h"
#include "eval/report/journal_file.h"

namespace kakeya::eval {

// A journal, used by one thread. Lines: {"schema", "run"}, then {"begin": {...}} and {"reply":
// {...}} with the place of the prompt.
class NiahJournal {
 public:
  // A prompt that ended the program so often while a reply to it was made is not asked again.
  static constexpr int kMostAttempts = 3;

  // `run`: what must be the same for replies to be taken over. Errors: as JournalFile::open.
  static Result<NiahJournal> open(const std::string& path, const Report& run);

  // The reply to the prompt of this hash at this place; null: none yet. Errors: kFailedPrecondition
  // if the journal has one to another prompt there.
  Result<const NiahReply*> find(const NeedlePlace& place,
                                const std::string& mode,
                                const std::string& prompt_sha256) const;
  // How many times a reply was begun that is not there.
  int attempts(const NeedlePlace& place, const std::string& mode) const;

  // Errors: kUnavailable if the file takes no more.
  Status begin(const NeedlePlace& place, const std::string& mode);
  Status add(const NeedlePlace& place, const std::string& prompt_sha256, const NiahReply& reply);

  std::int64_t replies() const { return std::ssize(replies_); }

 private:
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::string>;
  static Key key_of(const NeedlePlace& place, const std::string& mode) {
    return {place.length, place.depth, place.index, mode};
  }
  struct Known {
    std::string prompt_sha256;
    NiahReply reply;
  };
  NiahJournal() = default;
  Status take_line(const Report& line);

  JournalFile file_;
  std::map<Key, Known> replies_;
  std::map<Key, int> attempts_;
};

}  // namespace kakeya::eval
