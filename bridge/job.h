// A job, which is asked for: a preset by its name, with parameters, of one machine, for some time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "envelope.h"
#include "kakeya/status.h"
#include "keys.h"

namespace kakeya::bridge {

// Times are seconds since 1970, of both sides' clocks.
inline constexpr std::int64_t kMostClockSkew = 300;
inline constexpr std::int64_t kMostLifetime = 7 * 24 * 3600;

struct Job {
  std::string id = {};
  std::string preset = {};
  Json parameters = Json::object();
  PublicKey server = {};  // of the machine that is to run it
  std::int64_t issued = 0;
  std::int64_t expires = 0;
};

// 4 to 64 of a-z, 0-9 and '-', not in front: it becomes the name of a file and of a branch.
bool is_id(std::string_view text);
// Never given before: seconds, and 64 random bits. Errors: kUnavailable.
Result<std::string> new_id(std::int64_t now);

Json job_json(const Job& job);
// Errors: kInvalidArgument for a field that is missing, unknown, or of another type.
Result<Job> parse_job(const Json& json);

// Errors: kFailedPrecondition for a job that has expired, or is of the future; kInvalidArgument for
// one that would live too long, or expires before it is issued.
Status check_times(const Job& job, std::int64_t now);

}  // namespace kakeya::bridge
