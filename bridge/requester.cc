#include "requester.h"

#include <fcntl.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/status.h"
#include "formats/printable.h"
#include "presets.h"
#include "small_file.h"

namespace kakeya::bridge {
namespace {

constexpr std::size_t kMostSentBytes = std::size_t{16} << 10;

Json sent_json(const Sent& sent) {
  return {{"id", sent.id},         {"where", sent.where},
          {"preset", sent.preset}, {"parameters", sent.parameters},
          {"server", sent.server}, {"sha256", sent.sha256},
          {"issued", sent.issued}, {"expires", sent.expires}};
}

Result<Sent> parse_sent(const std::string& text, const std::string& name) {
  const Json json = parse_object(text).value_or(Json());
  const auto is_text = [&](const char* field) {
    return json.contains(field) && json[field].is_string();
  };
  const auto is_number = [&](const char* field) {
    return json.contains(field) && json[field].is_number_integer();
  };
  if (!json.is_object() || !is_text("id") || !is_text("where") || !is_text("preset") ||
      !is_text("server") || !is_text("sha256") || !is_number("issued") || !is_number("expires") ||
      !is_id(json["id"].get<std::string>())) {
    return data_loss("{}: expected a job that was sent", name);
  }
  // Parameters are taken for the preset's own where a version did not keep them.
  const Json parameters = json.value("parameters", Json::object());
  if (!parameters.is_object()) return data_loss("{}: expected parameters that are an object", name);
  return Sent{.id = json["id"].get<std::string>(),
              .where = json["where"].get<std::string>(),
              .preset = json["preset"].get<std::string>(),
              .parameters = parameters,
              .server = json["server"].get<std::string>(),
              .sha256 = json["sha256"].get<std::string>(),
              .issued = json["issued"].get<std::int64_t>(),
              .expires = json["expires"].get<std::int64_t>()};
}

}  // namespace

Result<Requester> Requester::open(const std::string& home) {
  KAKEYA_ASSIGN_OR_RETURN(SigningKey key, SigningKey::load(home + "/key"));
  KAKEYA_ASSIGN_OR_RETURN(Peers peers, Peers::load(home + "/peers"));
  for (const char* folder : {"", "/sent", "/results"})
    KAKEYA_TRY(open_folder(AT_FDCWD, home + folder));
  return Requester(home, std::move(key), std::move(peers));
}

Result<Peers::Peer> Requester::choose_server(const std::string& name) const {
  if (name.empty() && peers_.all().size() == 1) return peers_.all().front();
  if (name.empty()) {
    return invalid_argument("{}/peers has {} machines: name one, --server NAME", home_,
                            peers_.all().size());
  }
  const Peers::Peer* const peer = peers_.find(name);
  if (peer == nullptr) return invalid_argument("{}/peers has no machine '{}'", home_, name);
  return *peer;
}

Result<std::string> Requester::request(Mailbox& mailbox,
                                       const RequestOptions& options,
                                       std::int64_t now) {
  const Preset* const preset = find_preset(known_presets(), options.preset);
  if (preset == nullptr) {
    std::string known;
    for (const Preset& each : known_presets()) known += (known.empty() ? "" : ", ") + each.name;
    return invalid_argument("there is no preset '{}'; expected one of {}",
                            printable(options.preset), known);
  }
  Job job{.preset = preset->name, .issued = now, .expires = now + options.lifetime};
  KAKEYA_ASSIGN_OR_RETURN(job.parameters, parse_parameters(*preset, options.parameters));
  KAKEYA_ASSIGN_OR_RETURN(const Peers::Peer server, choose_server(options.server));
  job.server = server.key;
  KAKEYA_TRY(check_times(job, now));
  KAKEYA_ASSIGN_OR_RETURN(job.id, new_id(now));
  const Json payload = job_json(job);
  KAKEYA_ASSIGN_OR_RETURN(const std::string text, seal(Kind::kJob, payload, key_));
  const Sent sent{.id = job.id,
                  .where = options.where,
                  .preset = job.preset,
                  .parameters = job.parameters,
                  .server = server.name,
                  .sha256 = sha256_hex(json_line(payload)),
                  .issued = job.issued,
                  .expires = job.expires};
  KAKEYA_TRY(mailbox.put(Kind::kJob, job.id, text));
  KAKEYA_TRY(write_small_file(AT_FDCWD, home_ + "/sent/" + job.id + ".json",
                              json_line(sent_json(sent)) + "\n"));
  return job.id;
}

Result<std::vector<Sent>> Requester::sent() const {
  std::vector<Sent> all;
  std::error_code failed;
  for (std::filesystem::directory_iterator entry(home_ + "/sent", failed), end;
       !failed && entry != end; entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    if (name.front() == '.' || entry->path().extension() != ".json") continue;
    KAKEYA_ASSIGN_OR_RETURN(const std::string text,
                            read_small_file(AT_FDCWD, entry->path().string(), kMostSentBytes));
    KAKEYA_ASSIGN_OR_RETURN(Sent sent, parse_sent(text, entry->path().string()));
    std::error_code ignored;
    sent.fetched = std::filesystem::exists(home_ + "/results/" + sent.id + ".json", ignored);
    all.push_back(std::move(sent));
  }
  std::ranges::sort(all, {}, [](const Sent& each) { return std::pair(each.issued, each.id); });
  return all;
}

Result<std::optional<Outcome>> Requester::fetch(Mailbox& mailbox, const Sent& sent) {
  KAKEYA_ASSIGN_OR_RETURN(const std::vector<Mailbox::Entry> entries, mailbox.list(Kind::kResult));
  if (std::ranges::find(entries, sent.id, &Mailbox::Entry::name) == entries.end()) {
    return std::optional<Outcome>();
  }
  KAKEYA_ASSIGN_OR_RETURN(const std::string text, mailbox.read(Kind::kResult, sent.id));
  KAKEYA_ASSIGN_OR_RETURN(const Opened opened, open_sealed(Kind::kResult, text, peers_));
  KAKEYA_ASSIGN_OR_RETURN(Outcome outcome, parse_outcome(opened.payload));
  if (opened.signer.name != sent.server) {
    return error(StatusCode::kFailedPrecondition, "expected an answer of {}, got one of {}",
                 sent.server, opened.signer.name);
  }
  if (outcome.id != sent.id || outcome.job_sha256 != sent.sha256) {
    return error(StatusCode::kFailedPrecondition, "expected an answer to {}, got one to {}",
                 sent.id, printable(outcome.id));
  }
  if (outcome.preset != sent.preset) {
    return error(StatusCode::kFailedPrecondition,
                 "expected an answer of the preset {}, got one of {}", sent.preset,
                 printable(outcome.preset));
  }
  const std::string kept = home_ + "/results/" + sent.id + ".json";
  if (outcome.report.is_object()) {
    KAKEYA_TRY(write_small_file(AT_FDCWD, report_path(sent.id), outcome.report.dump(1) + "\n"));
  }
  KAKEYA_TRY(write_small_file(AT_FDCWD, kept, text));
  KAKEYA_TRY(mailbox.remove(Kind::kResult, sent.id));
  return std::optional<Outcome>(std::move(outcome));
}

std::string Requester::report_path(const std::string& id) const {
  return home_ + "/results/" + id + ".report.json";
}

}  // namespace kakeya::bridge
