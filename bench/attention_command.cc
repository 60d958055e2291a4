// kakeya bench attention: attention alone, over the rows that a session would have.
#include <fmt/format.h>

#include <memory>

#include "base/status.h"
#include "bench/attention_bench.h"
#include "bench/bench_flags.h"
#include "cli/model_path.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "formats/named_shapes.h"

namespace kakeya::cli {
namespace {

struct AttentionFlags {
  std::string shape = "gemma4-26b-a4b";
  std::string model;
  std::vector<std::string> kinds = {"bf16", "bf16-one", "int8", "e8"};
  bool json = false;
  bench::AttentionBenchOptions options{.config = {},
                                       .contexts = {1024, 16384, 65536},
                                       .rows = {1, 8, 16},
                                       .kinds = {},
                                       .on_progress = {}};
};

nlohmann::ordered_json attention_json(const AttentionFlags& flags,
                                      const bench::AttentionReport& report) {
  nlohmann::ordered_json json = {{"bench", "attention"},
                                 {"model", flags.model.empty() ? flags.shape : flags.model},
                                 {"backend", report.backend},
                                 {"threads", report.num_threads},
                                 {"results", nlohmann::ordered_json::array()}};
  for (const bench::AttentionResult& result : report.results) {
    json["results"].push_back({{"layer", result.sliding ? "sliding" : "full"},
                               {"kv", result.kind.name()},
                               {"context", result.context},
                               {"rows", result.rows},
                               {"seconds", result.seconds},
                               {"min_seconds", result.min_seconds},
                               {"max_seconds", result.max_seconds},
                               {"bytes", result.bytes},
                               {"gb_per_s", result.gb_per_s()},
                               {"probe_gb_per_s", result.probe_gb_per_s},
                               {"percent_of_probe", result.percent_of_probe()}});
  }
  return json;
}

void print_attention(const AttentionFlags& flags, const bench::AttentionReport& report) {
  print("attention of one layer of {}; {}, {} threads; medians\n",
        flags.model.empty() ? flags.shape : flags.model, report.backend, report.num_threads);
  print("{:<8} {:<9} {:>8} {:>5} {:>9} {:>19} {:>9} {:>7} {:>7} {:>7}\n", "layer", "kv", "context",
        "rows", "ms", "(min - max)", "MB", "GB/s", "probe", "%probe");
  for (const bench::AttentionResult& r : report.results) {
    print("{:<8} {:<9} {:>8} {:>5} {:>9.3f} {:>19} {:>9.2f} {:>7.1f} {:>7.1f} {:>6.0f}%\n",
          r.sliding ? "sliding" : "full", r.kind.name(), r.context, r.rows, 1e3 * r.seconds,
          fmt::format("({:.3f} - {:.3f})", 1e3 * r.min_seconds, 1e3 * r.max_seconds),
          1e-6 * r.bytes, r.gb_per_s(), r.probe_gb_per_s, r.percent_of_probe());
  }
}

Status prepare(AttentionFlags& flags) {
  if (flags.model.empty()) {
    KAKEYA_ASSIGN_OR_RETURN(flags.options.config, named_shape(flags.shape, 0));
  } else {
    KAKEYA_ASSIGN_OR_RETURN(const std::string path, path_of_model(flags.model, Purpose::kLookAt));
    KAKEYA_ASSIGN_OR_RETURN(flags.options.config, load_model_config(path));
  }
  for (const std::string& name : flags.kinds) {
    KAKEYA_ASSIGN_OR_RETURN(const bench::AttentionRows kind, bench::parse_attention_rows(name));
    flags.options.kinds.push_back(kind);
  }
  return {};
}

int attention_bench(AttentionFlags& flags) {
  if (const Status prepared = prepare(flags); !prepared) return report(prepared.error());
  Result<bench::AttentionReport> measured;
  {
    ProgressBar bar("measuring");
    flags.options.on_progress = [&](int done, int total) {
      bar.update(static_cast<std::uint64_t>(done), static_cast<std::uint64_t>(total));
    };
    measured = bench::bench_attention(flags.options);
  }
  if (!measured) return report(measured.error());
  if (flags.json) {
    print_json(attention_json(flags, *measured));
  } else {
    print_attention(flags, *measured);
  }
  return kExitOk;
}

}  // namespace

void add_attention_bench(CLI::App& bench, int& exit_code) {
  CLI::App* command = bench.add_subcommand(
      "attention", "Attention over cached rows of a real shape, for each way to keep them");
  auto flags = std::make_shared<AttentionFlags>();
  std::string names;
  for (const std::string_view name : shape_names()) names += " " + std::string(name);
  command
      ->add_option("--shape", flags->shape,
                   "Heads and windows of a published shape (default: gemma4-26b-a4b):" + names)
      ->type_name("NAME");
  command->add_option("--model", flags->model, "Those of a model's configuration instead")
      ->type_name("PATH");
  command
      ->add_option("--context", flags->options.contexts,
                   "Tokens in the cache before the queries (default: 1024,16384,65536)")
      ->delimiter(',')
      ->check(CLI::Range(0, 1 << 20))
      ->type_name("N,M,...");
  command
      ->add_option("--rows", flags->options.rows,
                   "Queries of one call, the last tokens of the text (default: 1,8,16)")
      ->delimiter(',')
      ->check(CLI::Range(1, 512))
      ->type_name("N,M,...");
  command
      ->add_option("--kv", flags->kinds,
                   "How rows are kept: f32, bf16, int8, e8; each with -one behind "
                   "it: one vector for key and value, in layers whose keys follow from the values "
                   "(default: bf16,bf16-one,int8,e8)")
      ->delimiter(',')
      ->type_name("TYPE,...");
  command
      ->add_option("--backend", flags->options.backend,
                   "cpu, or cpu/NAME of an instruction set that the doctor lists")
      ->type_name("NAME");
  command
      ->add_option("-t,--threads", flags->options.num_threads,
                   "Threads (default: one for each CPU)")
      ->check(CLI::Range(0, 1024))
      ->type_name("N");
  command
      ->add_option("--seconds", flags->options.seconds,
                   "Of measuring, for each case (default: 0.3)")
      ->check(CLI::Range(0.001, 60.0));
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->footer(
      "One layer of each class is timed, with as many copies of its rows as no cache of the "
      "processor holds. A sliding layer sees its window, so longer contexts are the same to it.\n"
      "bytes are those of the rows that some query sees, each counted once; probe is how fast the "
      "same threads read memory just before and after, %probe the share of it. 100 % would be "
      "attention that costs no more than reading; what is missing, mostly where queries are many "
      "or "
      "formats have few bits, is arithmetic.\n"
      "Examples:\n"
      "  kakeya bench attention\n"
      "  kakeya bench attention --context 65536 --rows 1 --kv bf16-one,int8,e8 --json\n"
      "  kakeya bench attention --shape qwen3-8b --backend cpu/avx2");
  command->callback([flags, &exit_code] { exit_code = attention_bench(*flags); });
}

}  // namespace kakeya::cli
