// The side that runs checks: looks at what lies in a mailbox, runs what it may, answers.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "job.h"
#include "kakeya/status.h"
#include "keys.h"
#include "mailbox.h"
#include "outcome.h"
#include "presets.h"
#include "small_file.h"

namespace kakeya::bridge {

// All of it is the serving side's own: nothing of it is read from a mailbox.
struct ServiceOptions {
  std::string home = {};  // folder for what was done, and answers that wait to be brought
  std::vector<Preset> presets = {};  // those that may be asked for
  ServingPrograms programs = {};
  std::function<std::int64_t()> now = {};            // seconds since 1970
  std::function<void(const std::string&)> say = {};  // a line about a job
  const std::atomic<bool>* stop = nullptr;           // ends the check that runs
};

struct Handled {
  int ran = 0;
  int refused = 0;
};

// Use on one thread, in a program that has no other.
class Service {
 public:
  // Errors: kUnavailable for a home that cannot be written.
  static Result<Service> create(SigningKey key, Peers peers, ServiceOptions options);

  // Looks once at the jobs that lie there. A job runs once: its id is kept before it starts, for
  // good. Jobs for other machines stay. What is signed by a peer and refused gets an answer; what
  // is not stays where it is, and is said once for each text. Errors: kUnavailable if the place
  // cannot be reached, or what was done cannot be kept.
  Result<Handled> handle_waiting(Mailbox& mailbox);

 private:
  Service(SigningKey key, Peers peers, ServiceOptions options)
      : key_(std::move(key)), peers_(std::move(peers)), options_(std::move(options)) {}

  // Empty: a job for another machine.
  Result<std::optional<Job>> read_job(Mailbox& mailbox, const std::string& name, Opened& opened);
  // Takes a job; true if it was never taken before.
  Result<bool> take(const std::string& name, const PublicKey& signer);
  Result<Outcome> run(const Job& job);
  // Handles an entry; true if its text need not be looked at again. Errors: of the place, or of
  // this machine's disk.
  Result<bool> handle(Mailbox& mailbox, const Mailbox::Entry& entry, Handled& handled);
  Status run_and_answer(Mailbox& mailbox, const Job& job, const Opened& opened, Handled& handled);
  Status answer(const Outcome& outcome);
  // Brings what was answered and could not be brought yet.
  Status bring_answers(Mailbox& mailbox);

  SigningKey key_;
  Peers peers_;
  ServiceOptions options_;
  Descriptor done_;
  Descriptor answers_;
  struct Looked {
    std::string version = {};
    int failures = 0;  // times that the place did not give it
  };
  std::map<std::string, Looked> looked_at_;  // by the entries' names
};

}  // namespace kakeya::bridge
