#include "eval/tasks/task_journal.h"

#include <utility>

#include "base/status.h"

namespace kakeya::eval {

Result<TaskJournal> TaskJournal::open(const std::string& path, const Report& run) {
  TaskJournal journal;
  const auto take = [&](const Report& line) -> Status {
    KAKEYA_ASSIGN_OR_RETURN(TaskReply reply, parse_task_reply(line));
    std::string id = reply.id;
    journal.replies_[std::move(id)] = std::move(reply);
    return {};
  };
  KAKEYA_ASSIGN_OR_RETURN(
      journal.file_,
      JournalFile::open(
          path, {.schema = "kakeya.eval.task.journal/1", .of = "problems", .run = run}, take));
  return journal;
}

Result<const TaskReply*> TaskJournal::find(const TaskReply& question) const {
  const auto found = replies_.find(question.id);
  if (found == replies_.end()) return nullptr;
  const TaskReply& known = found->second;
  if (known.prompt_sha256 == question.prompt_sha256 && known.expected == question.expected) {
    return &known;
  }
  return error(StatusCode::kFailedPrecondition, "{} has a reply to another problem named {}",
               file_.path(), question.id);
}

Status TaskJournal::add(const TaskReply& reply) {
  replies_[reply.id] = reply;
  return file_.write(task_reply_json(reply));
}

}  // namespace kakeya::eval
