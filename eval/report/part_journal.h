// The results of the parts of a run, such as its windows or its texts, in a file, so that a run
// that ended early goes on where it was.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "eval/prompts/prompt_set.h"
#include "eval/report/journal_file.h"
#include "kakeya/types.h"

namespace kakeya::eval {

// A journal of an evaluation's parts, used by one thread.
class PartJournal {
 public:
  // `of`: "eval kl", for messages. `run`: what must be the same for results to be taken over.
  // Errors: as JournalFile::open.
  static Result<PartJournal> open(const std::string& path,
                                  const std::string& of,
                                  const Report& run);

  // The result of `make` for a part, or the one that it gave in a run before; `journal`: null, if
  // nothing is kept. `part` has what the result depends on beside the run. Errors: those of `make`;
  // kUnavailable if the file takes no more.
  static Result<Report> result(PartJournal* journal,
                               const Report& part,
                               const std::function<Result<Report>()>& make);

 private:
  PartJournal() = default;

  JournalFile file_;
  std::map<std::string, Report> results_;
};

// The part of a set that runs these tokens.
Report part_of(const std::string& set, std::int64_t index, std::span<const TokenId> ids);
// All of a set, or what else of this name runs these prompts.
Report part_of(const std::string& name, std::span<const EvalPrompt> prompts);

}  // namespace kakeya::eval
