// Replies, samples and claims as reports have them.
#include "base/status.h"
#include "eval/niah/niah_claims.h"
#include "eval/report/field_reader.h"

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
  FieldReader fields(json);
  fields.take("mode", reply.mode)
      .take("seconds", reply.seconds)
      .take_if_there("error", reply.error)
      .take_if_there("sha256", reply.sha256)
      .take_if_there("found", reply.found)
      .take_if_there("evicted_rows", reply.evicted_rows)
      .take_if_there("restored_rows", reply.restored_rows)
      .take_if_there("codes_matter", reply.codes_matter);
  if (reply.error.empty()) {  // then nothing may be missing
    fields.take("sha256", reply.sha256)
        .take("found", reply.found)
        .take("evicted_rows", reply.evicted_rows)
        .take("restored_rows", reply.restored_rows);
  }
  KAKEYA_TRY(fields.status("a reply"));
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
