// kakeya bench prompt-cache: the time to the first token of a prompt that nobody has run, and of
// one whose beginning another session has run, from memory and from files; and what the cache holds
// for it.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/median.h"
#include "base/random.h"
#include "base/status.h"
#include "bench/bench_flags.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/terminal.h"

namespace kakeya::cli {
namespace {

struct PromptCacheReport {
  double cold_seconds = 0.0;  // to the first token; medians
  double cached_seconds = 0.0;
  double disk_seconds = 0.0;
  std::int64_t kept = 0;  // tokens of the second prompt that were not run
  std::int64_t disk_kept = 0;
  std::uint64_t disk_bytes = 0;  // of all files
  std::uint64_t bytes = 0;       // of the entry with the first one
};

// The time to the first token of a prompt in a new session; `kept` is what it did not run.
Result<double> first_token(Engine& engine,
                           const std::vector<TokenId>& prompt,
                           std::int64_t context,
                           std::int64_t& kept) {
  SessionOptions options = engine.session_options();
  options.context = context;
  options.drafting = false;
  KAKEYA_ASSIGN_OR_RETURN(const auto session, engine.create_session(options));
  const Stopwatch watch;
  KAKEYA_ASSIGN_OR_RETURN(kept, session->sync(prompt));
  KAKEYA_TRY(session->generate({.max_tokens = 1, .ignore_model_stop_ids = true}));
  return watch.seconds();
}

// Leaves in files what the cache holds in memory.
void leave_memory(PromptCache& cache) {
  cache.flush_files();
  while (cache.bytes() > 0 && cache.reclaim(1)) continue;
}

Result<PromptCacheReport> measure_prompt_cache(EngineImpl& engine, const BenchFlags& flags) {
  SequenceRng random(1);
  const auto vocab_size = static_cast<std::uint64_t>(engine.vocab_size());
  const auto set_random = [&](std::span<TokenId> ids) {
    for (TokenId& id : ids) id = static_cast<TokenId>(random.below(vocab_size));
  };
  std::vector<TokenId> prompt(static_cast<std::size_t>(flags.options.rows));
  const std::size_t own = std::min<std::size_t>(32, prompt.size() / 2);
  const auto context = static_cast<std::int64_t>(prompt.size() + own) + 1;
  std::vector<double> cold;
  std::vector<double> cached;
  std::vector<double> disk;
  PromptCacheReport result;
  ProgressBar bar("measuring");
  for (int i = 0; i < flags.options.repetitions; ++i) {
    set_random(prompt);
    std::int64_t unused = 0;
    KAKEYA_ASSIGN_OR_RETURN(cold.emplace_back(), first_token(engine, prompt, context, unused));
    if (i == 0) result.bytes = engine.footprint().reserved_bytes(MemoryClass::kPromptCache);
    set_random(std::span(prompt).last(own));
    KAKEYA_ASSIGN_OR_RETURN(cached.emplace_back(),
                            first_token(engine, prompt, context, result.kept));
    if (!flags.model.prompt_cache_dir.empty()) {
      leave_memory(*engine.prompt_cache());
      // Files are taken as a whole: this prompt goes on from the last one's end.
      std::vector<TokenId> longer = prompt;
      longer.resize(prompt.size() + own);
      set_random(std::span(longer).last(own));
      KAKEYA_ASSIGN_OR_RETURN(disk.emplace_back(),
                              first_token(engine, longer, context, result.disk_kept));
    }
    bar.update(static_cast<std::uint64_t>(i) + 1,
               static_cast<std::uint64_t>(flags.options.repetitions));
  }
  result.cold_seconds = median(std::move(cold));
  result.cached_seconds = median(std::move(cached));
  if (!disk.empty()) result.disk_seconds = median(std::move(disk));
  result.disk_bytes = engine.prompt_cache_statistics().disk_bytes;
  return result;
}

int prompt_cache_bench(BenchFlags& flags) {
  flags.model.prompt_cache = "1TiB";  // all the memory there is
  auto engine = open_bench_engine(flags);
  if (!engine) return report(engine.error());
  const auto result = measure_prompt_cache(**engine, flags);
  if (!result) return report(result.error());
  if (flags.json) {
    nlohmann::ordered_json json = header_json(flags, **engine, "prompt-cache");
    json["prompt_tokens"] = flags.options.rows;
    json["cold_seconds"] = result->cold_seconds;
    json["cached_seconds"] = result->cached_seconds;
    json["kept_tokens"] = result->kept;
    json["entry_bytes"] = result->bytes;
    if (!flags.model.prompt_cache_dir.empty()) {
      json["disk_seconds"] = result->disk_seconds;
      json["disk_kept_tokens"] = result->disk_kept;
      json["disk_bytes"] = result->disk_bytes;
    }
    print_json(json);
    return kExitOk;
  }
  print_header(flags, **engine, "first token");
  print(
      "a prompt of {} tokens: {:.1f} ms\n"
      "one that begins like it: {:.1f} ms, {} tokens of it from the cache\n"
      "the cache holds {} for it\n",
      flags.options.rows, 1e3 * result->cold_seconds, 1e3 * result->cached_seconds, result->kept,
      format_bytes(result->bytes));
  if (flags.model.prompt_cache_dir.empty()) return kExitOk;
  print("from files: {:.1f} ms, {} tokens; all files take {}\n", 1e3 * result->disk_seconds,
        result->disk_kept, format_bytes(result->disk_bytes));
  return kExitOk;
}

}  // namespace

void add_prompt_cache_bench(CLI::App& bench, int& exit_code) {
  CLI::App* command = bench.add_subcommand(
      "prompt-cache", "The first token of a prompt whose beginning another session has run");
  auto flags = std::make_shared<BenchFlags>();
  flags->options.rows = 1024;
  add_shape_flags(*command, *flags);
  command->add_option("--rows", flags->options.rows, "Tokens of the prompt (default: 1024)")
      ->check(CLI::Range(64, 1 << 20))
      ->type_name("N");
  command->add_option("--repetitions", flags->options.repetitions, "Repetitions (default: 7)")
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
  command
      ->add_option("--prompt-cache-dir", flags->model.prompt_cache_dir,
                   "Measure from files in this folder too, which stay there")
      ->type_name("DIR");
  add_model_flags(*command, flags->model);
  command->callback([flags, &exit_code] { exit_code = prompt_cache_bench(*flags); });
}

}  // namespace kakeya::cli
