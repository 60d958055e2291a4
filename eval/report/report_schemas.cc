#include "eval/report/report_schemas.h"

#include <map>
#include <sstream>
#include <utility>

namespace kakeya::eval {
namespace {

FieldType field_type(const std::string& name) {
  static const std::map<std::string, FieldType> kTypes = {
      {"text", FieldType::kText},       {"word", FieldType::kWord},
      {"commit", FieldType::kCommit},   {"hash", FieldType::kHash},
      {"time", FieldType::kTime},       {"count", FieldType::kCount},
      {"number", FieldType::kNumber},   {"limit", FieldType::kLimit},
      {"seconds", FieldType::kSeconds}, {"share", FieldType::kShare},
      {"flag", FieldType::kFlag}};
  return kTypes.at(name);
}

FieldRole field_role(const std::string& name) {
  if (name == "checked") return FieldRole::kChecked;
  if (name == "measured") return FieldRole::kMeasured;
  return name == "stated" ? FieldRole::kStated : FieldRole::kResult;
}

}  // namespace

const std::string_view kProvenance = R"(
schema text stated
version? text stated
commit commit result
dirty flag checked
command/* word stated
machine/cpu text stated
machine/cpus count stated
machine/system? text stated
conditions/started time stated
conditions/seconds seconds stated
conditions/load_before number stated
conditions/load_after number stated
conditions/other_cpu_share? share stated
conditions/steal_share? share stated
model text stated
)";

const std::string_view kEngine = R"(
weights hash result
drafter_weights? hash result
backend text stated
threads count stated
compute text stated
)";

const std::string_view kSession = R"(
session/context count checked
session/chunk count checked
session/kv_full text checked
session/kv_sliding text checked
session/kv_drafter text checked
session/window count checked
session/sink count checked
session/evicted_full text checked
session/evicted_sliding text checked
session/kv_codes text checked
session/kv_exact? count checked
session/projection text checked
session/draft text checked
session/allow_inexact flag checked
session/backend text checked
session/compute text checked
session/threads count checked
projections/*?/name text checked
projections/*?/fingerprint hash result
)";

const std::string_view kServed = R"(
server text stated
options/parallel count stated
)";

void add_fields(std::string_view table, const std::string& prefix, std::vector<ReportField>& to) {
  std::istringstream lines{std::string(table)};
  std::string path;
  std::string type;
  std::string role;
  while (lines >> path >> type >> role) {
    to.push_back(
        {.names = names_of(prefix + path), .type = field_type(type), .role = field_role(role)});
  }
}

std::vector<ReportField> fields_of(std::initializer_list<std::string_view> tables) {
  std::vector<ReportField> fields;
  for (const std::string_view table : tables) add_fields(table, "", fields);
  return fields;
}

std::vector<ReportSchema> engine_schemas(int version, const std::vector<ReportField>& own) {
  std::vector<ReportField> before = fields_of({kProvenance, kEngine});
  before.insert(before.end(), own.begin(), own.end());
  std::vector<ReportField> since = before;
  add_fields(kSession, "", since);
  return {{version, std::move(before)}, {version + 1, std::move(since)}};
}

}  // namespace kakeya::eval
