#include "job.h"

#include <algorithm>
#include <array>

#include "base/status.h"
#include "formats/printable.h"

namespace kakeya::bridge {

bool is_id(std::string_view text) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  };
  return text.size() >= 4 && text.size() <= 64 && text.front() != '-' &&
         std::ranges::all_of(text, fits);
}

Result<std::string> new_id(std::int64_t now) {
  std::array<unsigned char, 8> random = {};
  KAKEYA_TRY(random_bytes(random));
  return fmt::format("{}-{}", now, to_hex(random));
}

Json job_json(const Job& job) {
  return {{"id", job.id},
          {"preset", job.preset},
          {"parameters", job.parameters},
          {"server", to_hex(job.server)},
          {"issued", job.issued},
          {"expires", job.expires}};
}

Result<Job> parse_job(const Json& json) {
  constexpr std::array kFields = {"id", "preset", "parameters", "server", "issued", "expires"};
  for (const auto& [name, unused] : json.items()) {
    if (std::ranges::find(kFields, name) == kFields.end()) {
      return invalid_argument("a job has no field '{}'", printable(name));
    }
  }
  for (const char* name : kFields) {
    if (!json.contains(name)) return invalid_argument("a job needs the field '{}'", name);
  }
  const auto is_text = [&](const char* name) { return json[name].is_string(); };
  // Neither fractions nor what no signed number holds.
  const auto is_time = [&](const char* name) {
    return json[name].is_number_integer() && json[name] >= 0 &&
           json[name] < (std::int64_t{1} << 40);
  };
  Job job;
  if (!is_text("id") || !is_id(json["id"].get<std::string>())) {
    return invalid_argument("id: expected 4 to 64 of a-z, 0-9 and '-', not in front");
  }
  if (!is_text("preset")) return invalid_argument("preset: expected a text");
  if (!json["parameters"].is_object()) return invalid_argument("parameters: expected an object");
  if (!is_text("server") || !from_hex(json["server"].get<std::string>(), job.server)) {
    return invalid_argument("server: expected 64 hexadecimal digits");
  }
  if (!is_time("issued") || !is_time("expires")) {
    return invalid_argument("issued, expires: expected seconds since 1970");
  }
  job.id = json["id"].get<std::string>();
  job.preset = json["preset"].get<std::string>();
  job.parameters = json["parameters"];
  job.issued = json["issued"].get<std::int64_t>();
  job.expires = json["expires"].get<std::int64_t>();
  return job;
}

Status check_times(const Job& job, std::int64_t now) {
  if (job.expires <= job.issued) {
    return invalid_argument("expected to expire after it was issued, got {} s before that",
                            job.issued - job.expires);
  }
  if (job.expires <= now) {
    return error(StatusCode::kFailedPrecondition, "it expired {} s ago", now - job.expires);
  }
  if (job.issued > now + kMostClockSkew) {
    return error(StatusCode::kFailedPrecondition, "it was issued {} s in the future",
                 job.issued - now);
  }
  if (job.expires - job.issued > kMostLifetime) {
    return invalid_argument("expected a life of at most {} s, got {}", kMostLifetime,
                            job.expires - job.issued);
  }
  return {};
}

}  // namespace kakeya::bridge
