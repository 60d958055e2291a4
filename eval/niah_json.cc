// Replies, samples and claims as reports have them.
#include "base/status.h"
#include "niah_eval.h"

namespace kakeya::eval {
namespace {

NeedlePlace place_of(const Report& json) {
  return {.length = json["length"].get<std::int64_t>(),
          .depth = json["depth"].get<std::int64_t>(),
          .index = json["index"].get<std::int64_t>()};
}

}  // namespace

Report niah_reply_json(const NiahReply& reply) {
  Report json = {{"mode", reply.mode}};
  if (!reply.error.empty()) {
    json["seconds"] = reply.seconds;
    json["error"] = reply.error;
    return json;
  }
  json["sha256"] = reply.sha256;
  json["found"] = reply.found;
  json["seconds"] = reply.seconds;
  json["evicted_rows"] = reply.evicted_rows;
  json["restored_rows"] = reply.restored_rows;
  if (reply.codes_matter) json["codes_matter"] = *reply.codes_matter;
  return json;
}

Result<NiahReply> parse_niah_reply(const Report& json) {
  NiahReply reply;
  bool whole = json.is_object();
  const auto take = [&](const char* name, auto& to, bool needed) {
    const auto found = whole ? json.find(name) : json.end();
    if (!whole || found == json.end()) {
      whole = whole && !needed;
      return;
    }
    using Value = std::decay_t<decltype(to)>;
    if constexpr (std::is_same_v<Value, std::string>) {
      whole = found->is_string();
    } else if constexpr (std::is_same_v<Value, double>) {
      whole = found->is_number();
    } else if constexpr (std::is_same_v<Value, std::optional<bool>>) {
      whole = found->is_boolean();
      if (whole) to = found->template get<bool>();
      return;
    } else {
      whole = found->is_number_integer() && *found >= 0;
    }
    if constexpr (!std::is_same_v<Value, std::optional<bool>>) {
      if (whole) to = found->template get<Value>();
    }
  };
  take("mode", reply.mode, true);
  take("error", reply.error, false);
  const bool answered = reply.error.empty();
  take("sha256", reply.sha256, answered);
  take("found", reply.found, answered);
  take("seconds", reply.seconds, true);
  take("evicted_rows", reply.evicted_rows, answered);
  take("restored_rows", reply.restored_rows, answered);
  take("codes_matter", reply.codes_matter, false);
  if (!whole) return data_loss("expected a reply, got {}", json.dump().substr(0, 80));
  return reply;
}

Report niah_sample_json(const NiahSample& sample) {
  Report json = {{"length", sample.place.length}, {"depth", sample.place.depth},
                 {"index", sample.place.index},   {"sha256", sample.sha256},
                 {"tokens", sample.tokens},       {"needle_at", sample.needle_at},
                 {"answers", sample.answers}};
  for (const NiahReply& reply : sample.replies) json["replies"].push_back(niah_reply_json(reply));
  return json;
}

Report niah_claim_json(const NiahClaim& claim) {
  Report json = {{"mode", claim.mode},
                 {"length", claim.length},
                 {"samples", claim.samples},
                 {"found", claim.found},
                 {"errors", claim.errors}};
  if (!claim.made) return json;
  const Interval interval = claim.interval();
  json["recall"] = claim.recall();
  json["low"] = interval.low;
  json["high"] = interval.high;
  return json;
}

std::vector<NiahSample> niah_samples_of(const Report& report) {
  std::vector<NiahSample> samples;
  for (const Report& json : report["samples"]) {
    NiahSample sample{.place = place_of(json),
                      .sha256 = json["sha256"].get<std::string>(),
                      .tokens = json["tokens"].get<std::int64_t>(),
                      .needle_at = json["needle_at"].get<std::int64_t>(),
                      .answers = json["answers"].get<std::int64_t>(),
                      .replies = {}};
    for (const Report& each : json["replies"]) {
      // One that lacks a field counts as one that failed.
      NiahReply broken{.mode = each["mode"].get<std::string>(), .error = "not a reply"};
      sample.replies.push_back(parse_niah_reply(each).value_or(std::move(broken)));
    }
    samples.push_back(std::move(sample));
  }
  return samples;
}

}  // namespace kakeya::eval
