#include "eval/report/line_kinds.h"

#include <string>
#include <utility>

#include "eval/report/line_gate.h"

namespace kakeya::eval {
namespace {

using enum FieldRole;

struct LineField {
  std::string_view at;  // '?' behind a name: it may be missing
  FieldType type;
  FieldRole role;
};

using LineFields = std::vector<LineField>;

const LineFields& fields_of_a_run() {
  static const LineFields kFields = {{"code", FieldType::kText, kChecked},
                                     {"command", FieldType::kText, kChecked},
                                     {"note?", FieldType::kText, kStated},
                                     {"changed?", FieldType::kText, kStated}};
  return kFields;
}

LineKind kind_of(std::string_view marker,
                 const std::vector<LineFields>& groups,
                 void (*check)(const Report&, const std::string&, RuleChecks&)) {
  LineKind kind{.marker = marker, .fields = {}, .check = check};
  for (const LineFields& group : groups) {
    for (const LineField& field : group) {
      kind.fields.push_back({names_of(field.at), field.type, field.role});
    }
  }
  return kind;
}

LineKind fact_kind(std::string_view marker, const LineFields& fields) {
  return kind_of(marker, {{{"fact", FieldType::kText, kChecked}}, fields}, check_fact_line);
}

// Facts: what a card can do, each measured by a program of its own.
std::vector<LineKind> fact_kinds() {
  const auto measured = [](std::string_view at) {
    return LineField{at, FieldType::kSeconds, kMeasured};
  };
  const auto given = [](std::string_view at) { return LineField{at, FieldType::kCount, kChecked}; };
  return {
      fact_kind("in_flight_kib",
                {{"by", FieldType::kText, kStated}, given("in_flight_kib"), measured("gb_per_s")}),
      fact_kind("ring_kib", {{"by", FieldType::kText, kStated},
                             given("blocks"),
                             given("ring_kib"),
                             given("chunk_kib"),
                             measured("gb_per_s")}),
      fact_kind("sums", {given("sums"),
                         given("exponents"),
                         {"zeros", FieldType::kShare, kStated},
                         given("unlike_model_of_16"),
                         {"unlike_model_of_8_and_8", FieldType::kCount, kResult},
                         given("mma_unlike_wgmma")}),
      fact_kind("stream_us", {{"kernels", FieldType::kCount, kStated},
                              measured("stream_us"),
                              measured("graph_us"),
                              measured("graph_early_start_us"),
                              measured("graph_early_start_and_prefetch_us")}),
      fact_kind("iteration_us", {given("kernels_in_the_loop"), measured("iteration_us")}),
      fact_kind("cluster", {given("cluster"), measured("barrier_us")}),
      fact_kind("load_of_a_neighbours_shared_memory_us",
                {measured("load_of_a_neighbours_shared_memory_us")}),
      fact_kind("grid_barrier_us", {measured("grid_barrier_us")}),
      fact_kind("cold_us", {given("mib"), measured("cold_us"), measured("after_stream_us"),
                            measured("hot_us")}),
      fact_kind("one_reduction_us", {{"width", FieldType::kCount, kStated},
                                     measured("one_reduction_us"),
                                     measured("three_reductions_us")}),
      fact_kind("read_mib", {given("read_mib"), measured("pinned_us"), measured("pageable_us")}),
      fact_kind("round_trip_through_mapped_memory_us",
                {measured("round_trip_through_mapped_memory_us")}),
      fact_kind("mma_sync_bf16_tflops",
                {measured("mma_sync_bf16_tflops"), measured("mma_sync_int8_tops")}),
      fact_kind("upload_pinned_gb_per_s",
                {measured("upload_pinned_gb_per_s"), measured("upload_pageable_gb_per_s")}),
      fact_kind("capture_us", {{"nodes", FieldType::kCount, kStated},
                               measured("capture_us"),
                               measured("instantiate_us"),
                               measured("first_launch_us"),
                               measured("launch_us"),
                               measured("update_us")}),
  };
}

// Figures that `kakeya bench` printed, rounded.
std::vector<LineKind> bench_kinds() {
  const LineFields& run = fields_of_a_run();
  return {
      kind_of("verify_ms",
              {run,
               {{"figure", FieldType::kText, kStated},
                {"verify_ms/*", FieldType::kSeconds, kMeasured},
                {"draft_ms/*", FieldType::kSeconds, kMeasured}}},
              check_costs_line),
      kind_of("times_plain",
              {run,
               {{"draft_length", FieldType::kText, kChecked},
                {"tokens_per_second", FieldType::kSeconds, kChecked},
                {"min_tokens_per_second", FieldType::kSeconds, kMeasured},
                {"max_tokens_per_second", FieldType::kSeconds, kMeasured},
                {"times_plain", FieldType::kSeconds, kChecked},
                {"tokens_per_round", FieldType::kSeconds, kChecked},
                {"outputs_equal", FieldType::kFlag, kChecked}}},
              check_draft_line),
      kind_of("step_ms",
              {run,
               {{"sessions", FieldType::kCount, kChecked},
                {"tokens_per_second", FieldType::kSeconds, kChecked},
                {"min_tokens_per_second?", FieldType::kSeconds, kMeasured},
                {"max_tokens_per_second?", FieldType::kSeconds, kMeasured},
                {"step_ms", FieldType::kSeconds, kMeasured},
                {"probe_gb_per_s?", FieldType::kSeconds, kMeasured}}},
              check_session_line),
      kind_of("ms",
              {run,
               {{"rows", FieldType::kCount, kChecked},
                {"ms", FieldType::kSeconds, kMeasured},
                {"min_ms?", FieldType::kSeconds, kMeasured},
                {"max_ms?", FieldType::kSeconds, kMeasured},
                {"tokens_per_second?", FieldType::kSeconds, kChecked},
                {"gb?", FieldType::kSeconds, kResult},
                {"probe_gb_per_s?", FieldType::kSeconds, kMeasured},
                {"distinct_experts?", FieldType::kSeconds, kResult}}},
              check_pass_line),
  };
}

// Parts of a long run, and its verdict.
std::vector<LineKind> soak_kinds() {
  const LineFields state = {{"figure", FieldType::kText, kChecked},
                            {"backend", FieldType::kText, kStated},
                            {"minutes", FieldType::kSeconds, kChecked},
                            {"tokens", FieldType::kCount, kChecked},
                            {"tokens_per_second", FieldType::kSeconds, kChecked},
                            {"p50_ms", FieldType::kSeconds, kMeasured},
                            {"p99_ms", FieldType::kSeconds, kMeasured},
                            {"ledger_bytes", FieldType::kCount, kChecked},
                            {"resident_bytes", FieldType::kCount, kChecked},
                            {"clocks.sm?", FieldType::kSeconds, kStated},
                            {"clocks.mem?", FieldType::kSeconds, kStated},
                            {"power.draw?", FieldType::kSeconds, kStated},
                            {"temperature.gpu?", FieldType::kSeconds, kStated},
                            {"memory.used?", FieldType::kSeconds, kResult}};
  return {
      kind_of("figure=soak", {state}, check_state_line),
      kind_of("figure=soak verdict",
              {{{"figure", FieldType::kText, kChecked},
                {"conversations", FieldType::kCount, kResult},
                {"failures", FieldType::kCount, kChecked},
                {"p50_ratio", FieldType::kSeconds, kChecked},
                {"ledger_growth", FieldType::kCount, kChecked},
                {"resident_growth", FieldType::kCount, kChecked},
                {"flat", FieldType::kFlag, kChecked},
                {"answers_equal", FieldType::kFlag, kChecked}}},
              check_verdict_line),
  };
}

// Findings of a profiler and the tests' programs said, and the card's state beside.
std::vector<LineKind> card_kinds() {
  return {
      kind_of("figure=parity",
              {{{"code", FieldType::kText, kChecked},
                {"figure", FieldType::kText, kChecked},
                {"program", FieldType::kText, kStated},
                {"tests", FieldType::kCount, kResult},
                {"failed", FieldType::kCount, kChecked},
                {"seconds", FieldType::kText, kMeasured}}},
              check_parity_line),
      kind_of("figure=card behind it",
              {{{"code", FieldType::kText, kChecked},
                {"figure", FieldType::kText, kChecked},
                {"name", FieldType::kText, kStated},
                {"clocks_sm", FieldType::kCount, kStated},
                {"clocks_mem", FieldType::kCount, kStated},
                {"power_w", FieldType::kSeconds, kStated},
                {"degrees", FieldType::kCount, kStated},
                {"driver", FieldType::kText, kStated}}},
              check_state_line),
      kind_of("kernel",
              {{{"code", FieldType::kText, kChecked},
                {"rows?", FieldType::kCount, kStated},
                {"sessions?", FieldType::kCount, kStated},
                {"kernel", FieldType::kText, kStated},
                {"grid?", FieldType::kText, kStated},
                {"block?", FieldType::kText, kStated},
                {"blocks?", FieldType::kCount, kStated},
                {"multiprocessors?", FieldType::kCount, kStated},
                {"behind?", FieldType::kText, kStated},
                {"launches", FieldType::kCount, kMeasured},
                {"us", FieldType::kSeconds, kMeasured}}},
              check_kernel_line),
      // Not of one kernel: of a pass, or of the host between two.
      kind_of("us",
              {{{"code", FieldType::kText, kChecked},
                {"rows?", FieldType::kCount, kStated},
                {"sessions?", FieldType::kCount, kStated},
                {"draft_length?", FieldType::kCount, kStated},
                {"figure", FieldType::kText, kStated},
                {"launches?", FieldType::kCount, kMeasured},
                {"us", FieldType::kSeconds, kMeasured}}},
              nullptr),
  };
}

bool has_marker(const Report& line, std::string_view marker) {
  const std::size_t equals = marker.find('=');
  const auto found = line.find(std::string(marker.substr(0, equals)));
  if (found == line.end()) return false;
  return equals == std::string_view::npos || *found == std::string(marker.substr(equals + 1));
}

}  // namespace

const LineKind* find_line_kind(const Report& line) {
  static const std::vector<LineKind> kKinds = [] {
    std::vector<LineKind> all = fact_kinds();
    for (std::vector<LineKind> more : {bench_kinds(), soak_kinds(), card_kinds()}) {
      for (LineKind& kind : more) all.push_back(std::move(kind));
    }
    return all;
  }();
  if (!line.is_object()) return nullptr;
  for (const LineKind& kind : kKinds) {
    if (has_marker(line, kind.marker)) return &kind;
  }
  return nullptr;
}

Report without_nulls(const Report& line) {
  Report whole = Report::object();
  for (const auto& [name, value] : line.items()) {
    if (name != "behind" || !value.is_null()) whole[name] = value;
  }
  return whole;
}

const ReportField* find_line_field(const Report& line, std::string_view at) {
  const LineKind* kind = find_line_kind(line);
  return kind == nullptr ? nullptr : find_field(kind->fields, at);
}

}  // namespace kakeya::eval
