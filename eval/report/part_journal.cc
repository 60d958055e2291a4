#include "eval/report/part_journal.h"

#include <utility>
#include <vector>

#include "cli/sha256.h"
#include "eval/report/field_reader.h"

namespace kakeya::eval {

Result<PartJournal> PartJournal::open(const std::string& path,
                                      const std::string& of,
                                      const Report& run) {
  PartJournal journal;
  const auto take = [&](const Report& line) -> Status {
    Report part;
    Report result;
    KAKEYA_TRY(
        FieldReader(line).take("part", part).take("result", result).status("a part's result"));
    journal.results_[part.dump()] = std::move(result);
    return {};
  };
  Report of_run = {{"evaluation", of}};
  of_run.update(run);
  const JournalFile::Kind kind = {
      .schema = "kakeya.eval.parts.journal/1", .of = of, .run = std::move(of_run)};
  KAKEYA_ASSIGN_OR_RETURN(journal.file_, JournalFile::open(path, kind, take));
  return journal;
}

Result<Report> PartJournal::result(PartJournal* journal,
                                   const Report& part,
                                   const std::function<Result<Report>()>& make) {
  if (journal == nullptr) return make();
  if (const auto known = journal->results_.find(part.dump()); known != journal->results_.end()) {
    return known->second;
  }
  KAKEYA_ASSIGN_OR_RETURN(Report made, make());
  KAKEYA_TRY(journal->file_.write({{"part", part}, {"result", made}}));
  return made;
}

Report part_of(const std::string& set, std::int64_t index, std::span<const TokenId> ids) {
  return {{"set", set}, {"index", index}, {"sha256", cli::ids_sha256(ids)}};
}

Report part_of(const std::string& name, std::span<const EvalPrompt> prompts) {
  std::vector<TokenId> ids;
  std::vector<std::int64_t> lengths;
  for (const EvalPrompt& prompt : prompts) {
    ids.insert(ids.end(), prompt.ids.begin(), prompt.ids.end());
    lengths.push_back(std::ssize(prompt.ids));
  }
  return {{"set", name}, {"lengths", lengths}, {"sha256", cli::ids_sha256(ids)}};
}

}  // namespace kakeya::eval
