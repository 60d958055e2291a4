#include "service.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/child_process.h"
#include "base/status.h"
#include "base/temporary_folder.h"
#include "formats/printable.h"

namespace kakeya::bridge {
namespace {

// The limit of what a check writes as its report, all files together.
constexpr std::size_t kMostReportBytes = std::size_t{8} << 20;
constexpr std::size_t kMostReports = 100;
constexpr int kMostFailures = 3;

// All that a check learns of this machine besides its arguments.
std::vector<std::string> check_environment(const std::string& scratch) {
  return {std::string("PATH=") + kProgramFolders, "LANG=C.UTF-8", "HOME=" + scratch,
          "TMPDIR=" + scratch};
}

// Null: it is no object, or one that is too deep.
Json parsed(const std::string& text) {
  return parse_object(text).value_or(Json());
}

// summary.json and reports/*.json of `out`; null without a summary.
Json reports_of_folder(const std::string& out) {
  const auto summary = read_small_file(AT_FDCWD, out + "/summary.json", kMostReportBytes);
  Json report = summary ? parsed(*summary) : Json();
  if (!report.is_object()) return Json();
  Json reports = Json::object();
  std::size_t left = kMostReportBytes - summary->size();
  std::error_code failed;
  for (std::filesystem::directory_iterator entry(out + "/reports", failed), end;
       !failed && entry != end && reports.size() < kMostReports; entry.increment(failed)) {
    if (entry->path().extension() != ".json") continue;
    const auto text = read_small_file(AT_FDCWD, entry->path().string(), left);
    if (!text) continue;
    left -= text->size();
    reports[entry->path().stem().string()] = parsed(*text);
  }
  return {{"summary", std::move(report)}, {"reports", std::move(reports)}};
}

}  // namespace

Result<Service> Service::create(SigningKey key, Peers peers, ServiceOptions options) {
  Service service(std::move(key), std::move(peers), std::move(options));
  KAKEYA_ASSIGN_OR_RETURN(const Descriptor home, open_folder(AT_FDCWD, service.options_.home));
  KAKEYA_ASSIGN_OR_RETURN(service.done_, open_folder(home.get(), "done"));
  KAKEYA_ASSIGN_OR_RETURN(service.answers_, open_folder(home.get(), "answers"));
  return service;
}

Result<std::optional<Job>> Service::read_job(Mailbox& mailbox,
                                             const std::string& name,
                                             Opened& opened) {
  KAKEYA_ASSIGN_OR_RETURN(const std::string text, mailbox.read(Kind::kJob, name));
  KAKEYA_ASSIGN_OR_RETURN(opened, open_sealed(Kind::kJob, text, peers_));
  KAKEYA_ASSIGN_OR_RETURN(Job job, parse_job(opened.payload));
  if (job.server != key_.public_key()) return std::optional<Job>();
  if (job.id != name) {
    return invalid_argument("expected the id that it lies under, got {}", job.id);
  }
  return std::optional<Job>(std::move(job));
}

Result<bool> Service::take(const std::string& name, const PublicKey& signer) {
  // Ids of one peer say nothing of those of another.
  const std::string file = to_hex(signer).substr(0, 16) + "-" + name;
  const Descriptor taken(::openat(done_.get(), file.c_str(),
                                  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (taken.get() < 0 && errno == EEXIST) return false;
  if (taken.get() < 0 || ::fsync(taken.get()) != 0 || ::fsync(done_.get()) != 0) {
    return error(StatusCode::kUnavailable, "cannot keep what was done: {}", std::strerror(errno));
  }
  return true;
}

Result<Outcome> Service::run(const Job& job) {
  KAKEYA_TRY(check_times(job, options_.now()));
  const Preset* const preset = find_preset(options_.presets, job.preset);
  if (preset == nullptr) {
    return invalid_argument("this machine runs no preset '{}'", printable(job.preset));
  }
  KAKEYA_ASSIGN_OR_RETURN(const Values values, check_parameters(*preset, job.parameters));
  KAKEYA_ASSIGN_OR_RETURN(const TemporaryFolder scratch, TemporaryFolder::create());
  const std::string out = scratch.path() + "/out";
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<std::string> words,
                          command_of(*preset, values, options_.programs, out));
  Outcome outcome{.started = options_.now(), .limit_seconds = preset->seconds};
  KAKEYA_ASSIGN_OR_RETURN(
      ChildRun ran,
      run_child({.words = words,
                 .environment = check_environment(scratch.path()),
                 .folder = scratch.path()},
                {.seconds = preset->seconds, .output_bytes = preset->output_bytes}, options_.stop));
  outcome.end = end_name(ran.end);
  outcome.code = ran.code;
  outcome.seconds = ran.seconds;
  outcome.messages = std::move(ran.messages);
  outcome.report = preset->reports_into_folder ? reports_of_folder(out) : parsed(ran.output);
  return outcome;
}

Status Service::answer(const Outcome& outcome) {
  KAKEYA_ASSIGN_OR_RETURN(const std::string text, seal(Kind::kResult, outcome_json(outcome), key_));
  return write_small_file(answers_.get(), outcome.id, text);
}

Status Service::run_and_answer(Mailbox& mailbox,
                               const Job& job,
                               const Opened& opened,
                               Handled& handled) {
  options_.say(fmt::format("{} of {}: {} {}", job.id, opened.signer.name, printable(job.preset),
                           printable(json_line(job.parameters))));
  auto outcome = run(job);
  if (!outcome) {
    ++handled.refused;
    const std::string& why = outcome.error().message();
    options_.say(fmt::format("refused {}: {}", job.id, why));
    outcome = Outcome{.end = "refused", .refusal = why, .started = options_.now()};
  } else {
    ++handled.ran;
    options_.say(fmt::format("{}: {} with {} after {:.1f} s", job.id, outcome->end, outcome->code,
                             outcome->seconds));
  }
  outcome->id = job.id;
  outcome->job_sha256 = opened.sha256;
  outcome->preset = job.preset;
  KAKEYA_TRY(answer(*outcome));
  KAKEYA_TRY(bring_answers(mailbox));
  return mailbox.remove(Kind::kJob, job.id);
}

Result<bool> Service::handle(Mailbox& mailbox, const Mailbox::Entry& entry, Handled& handled) {
  const auto refuse = [&](const std::string& why) {
    ++handled.refused;
    options_.say(fmt::format("refused {}: {}", printable(entry.name), why));
    return true;
  };
  if (!entry.problem.empty()) return refuse(entry.problem);
  Opened opened;
  const auto job = read_job(mailbox, entry.name, opened);
  if (!job) {
    refuse(job.error().message());
    // A text that a place does not give now it may give later.
    return job.error().code() != StatusCode::kUnavailable;
  }
  if (!*job) return true;  // another machine's
  KAKEYA_ASSIGN_OR_RETURN(const bool is_new, take(entry.name, opened.signer.key));
  if (!is_new) return refuse("it was done before, and no job runs twice");
  KAKEYA_TRY(run_and_answer(mailbox, **job, opened, handled));
  return false;  // what comes under that name now is another text
}

Status Service::bring_answers(Mailbox& mailbox) {
  std::error_code failed;
  const std::string folder = options_.home + "/answers";
  for (std::filesystem::directory_iterator entry(folder, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const std::string id = entry->path().filename().string();
    if (!is_id(id)) continue;
    KAKEYA_ASSIGN_OR_RETURN(const std::string text,
                            read_small_file(answers_.get(), id, kMostResultBytes));
    KAKEYA_TRY(mailbox.put(Kind::kResult, id, text));
    ::unlinkat(answers_.get(), id.c_str(), 0);
  }
  return {};
}

Result<Handled> Service::handle_waiting(Mailbox& mailbox) {
  Handled handled;
  KAKEYA_TRY(bring_answers(mailbox));
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<Mailbox::Entry> entries, mailbox.list(Kind::kJob));
  for (const Mailbox::Entry& entry : entries) {
    if (options_.stop != nullptr && *options_.stop) break;
    if (looked_at_.size() > 10 * kMostEntries) looked_at_.clear();
    Looked& looked = looked_at_[entry.name];
    if (looked.version != entry.version) looked = {.version = entry.version};
    if (looked.failures >= kMostFailures) continue;
    KAKEYA_ASSIGN_OR_RETURN(const bool finished, handle(mailbox, entry, handled));
    // Nothing is tried for ever.
    looked.failures = finished ? kMostFailures : looked.failures + 1;
  }
  return handled;
}

}  // namespace kakeya::bridge
