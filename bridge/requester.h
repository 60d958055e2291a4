// The side that asks: signs jobs, remembers them, and brings their answers back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "job.h"
#include "kakeya/status.h"
#include "keys.h"
#include "mailbox.h"
#include "outcome.h"

namespace kakeya::bridge {

// A job that was sent, as the folder sent/ keeps it.
struct Sent {
  std::string id = {};
  std::string where = {};
  std::string preset = {};
  Json parameters = Json::object();
  std::string server = {};  // the peer that is to run it
  std::string sha256 = {};  // of the job's payload
  std::int64_t issued = 0;
  std::int64_t expires = 0;
  bool fetched = false;
};

struct RequestOptions {
  std::string where = {};
  std::string preset = {};
  std::vector<std::string> parameters = {};  // NAME=VALUE
  std::string server = {};                   // a peer's name; empty: the only one
  std::int64_t lifetime = 24 * 3600;         // seconds
};

// `home`: the folder with the key, the peers, sent/ and results/. One thread at a time.
class Requester {
 public:
  // Errors: those of SigningKey::load() and Peers::load(); kUnavailable.
  static Result<Requester> open(const std::string& home);

  // The id. Errors: kInvalidArgument for a preset, a parameter, a machine or a lifetime that there
  // is not; those of Mailbox::put().
  Result<std::string> request(Mailbox& mailbox, const RequestOptions& options, std::int64_t now);

  // All, the oldest first. Errors: kDataLoss for a file that is none.
  Result<std::vector<Sent>> sent() const;

  // The answer, kept as results/ID.json, its report as results/ID.report.json; nothing yet: none.
  // It is removed from the mailbox. Errors: those of open_sealed(), and kFailedPrecondition for an
  // answer of another machine, to another job, or of another preset.
  Result<std::optional<Outcome>> fetch(Mailbox& mailbox, const Sent& sent);

  // Where fetch() left the report.
  std::string report_path(const std::string& id) const;

 private:
  Requester(std::string home, SigningKey key, Peers peers)
      : home_(std::move(home)), key_(std::move(key)), peers_(std::move(peers)) {}
  Result<Peers::Peer> choose_server(const std::string& name) const;

  std::string home_;
  SigningKey key_;
  Peers peers_;
};

}  // namespace kakeya::bridge
