// The fields of every kind of report: tables, and what they are read into.
#include <map>
#include <sstream>
#include <utility>

#include "eval/report/report_fields.h"
#include "eval/report/report_tables.h"

namespace kakeya::eval {
namespace {

// A line a field: path, type, role. '?' behind the path: it may be missing, with what is below it.
constexpr std::string_view kProvenance = R"(
schema text stated
version? text stated
commit commit result
dirty flag checked
command/* text stated
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

constexpr std::string_view kEngine = R"(
weights hash result
drafter_weights? hash result
backend text stated
threads count stated
compute text stated
)";

// Flags of sessions, and what restored rows: of versions from this one on.
constexpr std::string_view kSession = R"(
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
session/projection text checked
session/draft text checked
session/allow_inexact flag checked
session/backend text checked
session/compute text checked
session/threads count checked
projections/*?/name text checked
projections/*?/fingerprint hash result
)";

// Bounds of sets of windows: a set of one window has had none since the second version.
constexpr std::string_view kInterval = R"(
sets/*/low number checked
sets/*/high number checked
)";
constexpr std::string_view kOptionalInterval = R"(
sets/*/low? number checked
sets/*/high? number checked
)";

constexpr std::string_view kSpeculation = R"(
draft text stated
drafter_block count stated
options/max_tokens count stated
options/pairs count checked
options/limit count stated
options/draft_length text stated
options/forced_rejection flag checked
options/temperature number stated
options/seed count stated
options/mask_mode? text stated
options/embed_scale? text stated
options/unfused? flag stated
costs?/verify_seconds/* seconds measured
costs?/draft_seconds/* seconds measured
sets/*/set text stated
sets/*/prompts count checked
sets/*/prompt_tokens count result
sets/*/tokens count checked
sets/*/outputs_equal count checked
sets/*/differing/*? text checked
sets/*/rounds count checked
sets/*/drafting_rounds count checked
sets/*/drafted count checked
sets/*/accepted count checked
sets/*/accepted_per_round number checked
sets/*/acceptance_length number checked
sets/*/tokens_per_round number checked
sets/*/acceptance_by_depth/*?/depth count checked
sets/*/acceptance_by_depth/*?/rounds count checked
sets/*/acceptance_by_depth/*?/accepted count checked
sets/*/acceptance_by_depth/*?/share share checked
sets/*/plain_seconds/* seconds measured
sets/*/speculative_seconds/* seconds measured
sets/*/measuring_seconds? number stated
sets/*/plain_tokens_per_second number checked
sets/*/speculative_tokens_per_second number checked
sets/*/time_ratio number checked
sets/*/steady_time_ratio number checked
sets/*/speedup number checked
sets/*/plain_sha256 hash checked
sets/*/speculative_sha256 hash checked
sets/*/recall?/answers count checked
sets/*/recall?/plain count checked
sets/*/recall?/speculative count checked
outputs_equal flag checked
slowest_time_ratio number checked
output_sha256 hash result
)";

constexpr std::string_view kKeysAndValues = R"(
options/lengths/* count checked
options/limit count stated
options/chunk count stated
options/needle_tokens count stated
modes/*/mode text checked
modes/*/control? text checked
texts/*/set text stated
texts/*/length count checked
texts/*/texts count checked
texts/*/modes/*/mode text checked
texts/*/modes/*/positions count checked
texts/*/modes/*/mean_kl number result
texts/*/modes/*/p99_kl number result
texts/*/modes/*/top1_agreement share result
texts/*/modes/*/reference_perplexity number checked
texts/*/modes/*/perplexity number result
texts/*/modes/*/kv_bytes/full count checked
texts/*/modes/*/kv_bytes/sliding count checked
texts/*/modes/*/kv_bytes/codes count checked
texts/*/modes/*/kv_bytes/total count checked
texts/*/modes/*/kv_bytes_per_token number result
needles/*/set text stated
needles/*/length count checked
needles/*/prompts count checked
needles/*/prompt_tokens count result
needles/*/reference_found count checked
needles/*/modes/*/mode text checked
needles/*/modes/*/found count result
needles/*/modes/*/same_output count result
exact flag checked
)";

constexpr std::string_view kPerplexity = R"(
options/window count checked
options/limit count stated
sets/*/set text stated
sets/*/tokens count checked
sets/*/perplexity number checked
sets/*/seconds seconds stated
sets/*/windows/*/text text stated
sets/*/windows/*/tokens count checked
sets/*/windows/*/nll number measured
)";

constexpr std::string_view kDivergence = R"(
options/length count checked
options/limit count stated
reference/model text stated
reference/weights hash result
reference/backend text stated
reference/compute text stated
sets/*/set text stated
sets/*/tokens count checked
sets/*/mean number checked
sets/*/median number result
sets/*/p99 number result
sets/*/most number result
sets/*/top_agreement share checked
sets/*/reference_perplexity number checked
sets/*/perplexity number checked
sets/*/seconds seconds stated
sets/*/windows/*/text text stated
sets/*/windows/*/tokens count checked
sets/*/windows/*/divergence number measured
sets/*/windows/*/reference_nll number measured
sets/*/windows/*/nll number measured
sets/*/windows/*/same_top count checked
)";

constexpr std::string_view kNeedlesInHaystacks = R"(
options/lengths/* count checked
options/depths/* count checked
options/samples count checked
options/needles count checked
options/distractors count stated
options/hops count checked
options/seed count stated
options/max_tokens count stated
options/haystack text stated
modes/*/mode text checked
modes/*/control? text stated
samples/*/length count checked
samples/*/depth count checked
samples/*/index count checked
samples/*/sha256 hash result
samples/*/tokens count checked
samples/*/needle_at count result
samples/*/answers count checked
samples/*/replies/*/mode text checked
samples/*/replies/*/sha256? hash result
samples/*/replies/*/found? count measured
samples/*/replies/*/seconds seconds measured
samples/*/replies/*/evicted_rows? count measured
samples/*/replies/*/restored_rows? count measured
samples/*/replies/*/codes_matter? flag measured
samples/*/replies/*/error? text stated
claims/*/mode text checked
claims/*/length count checked
claims/*/samples count checked
claims/*/found count checked
claims/*/errors count checked
claims/*/recall? share checked
claims/*/low? share checked
claims/*/high? share checked
)";

constexpr std::string_view kPasses = R"(
bench text checked
passes/*/rows count checked
passes/*/seconds seconds checked
passes/*/min_seconds seconds checked
passes/*/max_seconds seconds checked
passes/*/tokens_per_second number checked
passes/*/bytes number checked
passes/*/gb_per_s number checked
passes/*/probe_gb_per_s number checked
passes/*/percent_of_probe number checked
passes/*/gflop_per_s number stated
passes/*/distinct_experts number stated
passes/*/sample_seconds/* seconds measured
passes/*/sample_probe_gb_per_s/* number measured
)";

constexpr std::string_view kOperations = R"(
bench text checked
rows count stated
seconds seconds checked
sample_seconds/* seconds measured
bytes number result
probe_gb_per_s number stated
operations/*/name text stated
operations/*/calls count stated
operations/*/seconds seconds checked
operations/*/bytes number checked
operations/*/gb_per_s number checked
other_seconds number checked
)";

constexpr std::string_view kPeers = R"(
commands/kakeya/* text stated
commands/llama.cpp/* text stated
pairs count checked
measures/*/measure text stated
measures/*/command text stated
measures/*/bytes count checked
measures/*/probe_gb_per_s/* number measured
measures/*/ratio/median number checked
measures/*/ratio/min number checked
measures/*/ratio/max number checked
starts/kakeya/*/seconds seconds measured
starts/kakeya/*/load_seconds seconds measured
starts/llama.cpp/*/seconds seconds measured
starts/llama.cpp/*/load_seconds seconds measured
memory/kakeya/peak count result
memory/kakeya/own count result
memory/kakeya/mapped count result
memory/llama.cpp/peak count result
memory/llama.cpp/own count result
memory/llama.cpp/mapped count result
)";

// The fields of both engines.
constexpr std::string_view kPeer = R"(
seconds/* seconds measured
tokens_per_second/median number checked
tokens_per_second/min number checked
tokens_per_second/max number checked
gb_per_s?/median number checked
gb_per_s?/min number checked
gb_per_s?/max number checked
percent_of_probe?/median number checked
percent_of_probe?/min number checked
percent_of_probe?/max number checked
)";

constexpr std::string_view kSessions = R"(
bench text stated
context count stated
tokens count stated
draft_length limit stated
arriving count stated
results/*/sessions count stated
results/*/tokens_per_second number checked
results/*/min_tokens_per_second number checked
results/*/max_tokens_per_second number checked
results/*/ratio number checked
results/*/plain_ratio? number result
results/*/min_plain_ratio? number result
results/*/max_plain_ratio? number result
results/*/gap_seconds seconds result
results/*/gap_seconds_p99 seconds result
results/*/gap_seconds_max seconds result
results/*/step_seconds seconds result
results/*/chunk_times? number result
results/*/step_bytes number result
results/*/probe_gb_per_s number result
results/*/percent_of_probe number result
results/*/session_bytes count result
results/*/samples/* number measured
)";

constexpr std::string_view kServers = R"(
options/requests count checked
options/tokens count checked
options/words count stated
options/pairs count checked
options/threads count stated
measures/*/clients count checked
measures/*/ratio/median number checked
measures/*/ratio/min number checked
measures/*/ratio/max number checked
)";

// The fields of both servers: medians, and what they are medians of.
constexpr std::string_view kServerLoad = R"(
tokens_per_second number checked
first_token_seconds seconds checked
first_token_seconds_p99 seconds checked
)";

constexpr std::string_view kServerSample = R"(
tokens_per_second number measured
first_token_seconds seconds measured
first_token_seconds_p99 seconds measured
tokens count checked
answers count checked
)";

FieldType field_type(const std::string& name) {
  static const std::map<std::string, FieldType> kTypes = {
      {"text", FieldType::kText},   {"commit", FieldType::kCommit},
      {"hash", FieldType::kHash},   {"time", FieldType::kTime},
      {"count", FieldType::kCount}, {"number", FieldType::kNumber},
      {"limit", FieldType::kLimit}, {"seconds", FieldType::kSeconds},
      {"share", FieldType::kShare}, {"flag", FieldType::kFlag}};
  return kTypes.at(name);
}

FieldRole field_role(const std::string& name) {
  if (name == "checked") return FieldRole::kChecked;
  if (name == "measured") return FieldRole::kMeasured;
  return name == "stated" ? FieldRole::kStated : FieldRole::kResult;
}

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

using Kinds = std::map<std::string, std::vector<ReportField>, std::less<>>;

std::vector<ReportField> fields_of(std::initializer_list<std::string_view> tables) {
  std::vector<ReportField> fields;
  for (const std::string_view table : tables) add_fields(table, "", fields);
  return fields;
}

// Adds the version that does not say how sessions were, and the next one, which does.
void add_engine_kind(Kinds& all,
                     const std::string& name,
                     int version,
                     const std::vector<ReportField>& fields) {
  std::vector<ReportField> before = fields_of({kProvenance, kEngine});
  before.insert(before.end(), fields.begin(), fields.end());
  std::vector<ReportField>& since = all[name + "/" + std::to_string(version + 1)] = before;
  add_fields(kSession, "", since);
  all[name + "/" + std::to_string(version)] = std::move(before);
}

const Kinds& all_fields() {
  static const Kinds kFields = [] {
    Kinds all;
    add_engine_kind(all, "kakeya.eval.spec", 2, fields_of({kSpeculation}));
    add_engine_kind(all, "kakeya.eval.kv", 2, fields_of({kKeysAndValues}));
    add_engine_kind(all, "kakeya.eval.drafter-parity", 1, drafter_parity_fields());
    add_engine_kind(all, "kakeya.eval.overlap", 1, overlap_fields());
    add_engine_kind(all, "kakeya.eval.niah", 1,
                    fields_of({kNeedlesInHaystacks, "options/chunk count stated\n"}));
    add_engine_kind(all, "kakeya.eval.task", 1, fields_of({kTaskFields, kTaskPassFields}));
    add_engine_kind(all, "kakeya.longrun", 1, longrun_fields());
    add_engine_kind(all, "kakeya.multitenant", 1, multitenant_fields());
    all["kakeya.eval.perplexity/1"] = fields_of({kProvenance, kEngine, kPerplexity, kInterval});
    all["kakeya.eval.perplexity/2"] =
        fields_of({kProvenance, kEngine, kSession, kPerplexity, kOptionalInterval});
    all["kakeya.eval.kl/1"] = fields_of({kProvenance, kEngine, kDivergence, kInterval});
    all["kakeya.eval.kl/2"] =
        fields_of({kProvenance, kEngine, kSession, kDivergence, kOptionalInterval});
    all["kakeya.eval.served-niah/1"] = fields_of({kProvenance, kNeedlesInHaystacks, kServedFields});
    all["kakeya.eval.served-task/1"] = fields_of({kProvenance, kTaskFields, kServedFields});
    for (const char* pass : {"decode", "prefill", "verify"}) {
      all[std::string("kakeya.bench.") + pass + "/1"] = fields_of({kProvenance, kEngine, kPasses});
    }
    all["kakeya.bench.operations/1"] = fields_of({kProvenance, kEngine, kOperations});
    all["kakeya.bench.batch/1"] = fields_of({kProvenance, kEngine, kSessions});
    std::vector<ReportField> peers = fields_of({kProvenance, kPeers});
    for (const char* engine : {"kakeya", "llama.cpp"}) {
      add_fields(kPeer, std::string("measures/*/engines/") + engine + "/", peers);
    }
    all["kakeya.peers/2"] = std::move(peers);
    std::vector<ReportField> servers = fields_of({kProvenance, kServers});
    for (const char* engine : {"kakeya", "llama.cpp"}) {
      add_fields(kServerLoad, std::string("measures/*/") + engine + "/", servers);
      add_fields(kServerSample, std::string("measures/*/pairs/*/") + engine + "/", servers);
    }
    all["kakeya.servers/1"] = servers;
    add_fields("options/turns count stated\n", "", servers);
    all["kakeya.servers/2"] = std::move(servers);
    return all;
  }();
  return kFields;
}

}  // namespace

std::vector<std::string> names_of(std::string_view path) {
  std::vector<std::string> names;
  std::size_t begin = 0;
  while (begin <= path.size()) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    names.emplace_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

std::span<const ReportField> report_fields(std::string_view schema) {
  const auto found = all_fields().find(schema);
  if (found == all_fields().end()) return {};
  return found->second;
}

std::vector<std::string> report_schemas() {
  std::vector<std::string> schemas;
  for (const auto& [schema, fields] : all_fields()) schemas.push_back(schema);
  return schemas;
}

}  // namespace kakeya::eval
