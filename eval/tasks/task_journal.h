// The replies of a run over problems, in a file, so that a run that ended early goes on where it
// was.
#pragma once

#include <map>
#include <string>

#include "eval/report/journal_file.h"
#include "eval/tasks/task_eval.h"

namespace kakeya::eval {

// A journal of tasks, used by one thread.
class TaskJournal {
 public:
  // `run`: what must be the same for replies to be taken over. Errors: as JournalFile::open.
  static Result<TaskJournal> open(const std::string& path, const Report& run);

  // The reply to TaskEvaluation::question(); null: none yet. Errors: kFailedPrecondition if the
  // journal has one to another problem of this name.
  Result<const TaskReply*> find(const TaskReply& question) const;
  // Errors: kUnavailable if the file takes no more.
  Status add(const TaskReply& reply);

 private:
  TaskJournal() = default;

  JournalFile file_;
  std::map<std::string, TaskReply> replies_;
};

}  // namespace kakeya::eval
