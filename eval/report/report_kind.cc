#include "eval/report/report_kind.h"

#include "eval/report/report_kinds.h"

namespace kakeya::eval {

const ReportKind* find_report_kind(std::string_view schema) {
  const std::string_view name = schema.substr(0, schema.rfind('/'));
  for (const auto kind : kReportKinds) {
    if (kind().name == name) return &kind();
  }
  return nullptr;
}

std::span<const ReportField> report_fields(std::string_view schema) {
  const ReportKind* kind = find_report_kind(schema);
  if (kind == nullptr) return {};
  for (const ReportSchema& each : kind->schemas) {
    if (schema == std::string(kind->name) + "/" + std::to_string(each.version)) return each.fields;
  }
  return {};
}

}  // namespace kakeya::eval
