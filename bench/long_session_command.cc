// kakeya bench long-session: is a session that drops rows as fast and as small after so many tokens
// as at its beginning?
#include <fmt/format.h>

#include <memory>
#include <vector>

#include "base/median.h"
#include "base/status.h"
#include "bench/bench_flags.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/system_facts.h"
#include "cli/terminal.h"

namespace kakeya::cli {
namespace {

constexpr std::int64_t kTurn = 1000;  // tokens of one generation, whose result is not kept
constexpr std::int64_t kStep = 100;   // tokens of one session before the other has its turn

struct LongSessionFlags {
  BenchFlags bench;
  std::int64_t tokens = 200000;
};

struct LongSessionReport {
  std::uint64_t reserved_before = 0;  // the engine's, when caches are full and at the end
  std::uint64_t reserved_after = 0;
  std::uint64_t resident_before = 0;  // the process's
  std::uint64_t resident_after = 0;
  double long_seconds = 0.0;   // of a token at the end, median
  double young_seconds = 0.0;  // of one of a session that has just filled its caches
  double ratio = 0.0;          // median of the ratios of steps beside each other
};

class LongSession {
 public:
  LongSession(Engine& engine, const LongSessionFlags& flags) : engine_(engine), flags_(flags) {}

  Result<LongSessionReport> measure() {
    ProgressBar bar("decoding");
    LongSessionReport report;
    KAKEYA_ASSIGN_OR_RETURN(const auto young, filled_session());
    KAKEYA_ASSIGN_OR_RETURN(const auto session, filled_session());
    report.reserved_before = engine_.footprint().total_reserved();
    report.resident_before = resident_memory();
    while (std::ssize(session->tokens()) < flags_.tokens) {
      KAKEYA_TRY(generate(*session, kTurn));
      bar.update(static_cast<std::uint64_t>(std::ssize(session->tokens())),
                 static_cast<std::uint64_t>(flags_.tokens));
    }
    report.resident_after = resident_memory();
    report.reserved_after = engine_.footprint().total_reserved();
    std::vector<double> ratios;
    std::vector<double> of_young;
    std::vector<double> of_long;
    for (int i = 0; i < 10 * flags_.bench.options.repetitions; ++i) {
      KAKEYA_ASSIGN_OR_RETURN(of_young.emplace_back(), generate(*young, kStep));
      KAKEYA_ASSIGN_OR_RETURN(of_long.emplace_back(), generate(*session, kStep));
      ratios.push_back(of_long.back() / of_young.back());
    }
    report.young_seconds = median(of_young);
    report.long_seconds = median(of_long);
    report.ratio = median(ratios);
    return report;
  }

 private:
  // One whose windows and rings are full, so that it drops a row for every token.
  Result<std::unique_ptr<Session>> filled_session() {
    SessionOptions options = engine_.session_options();
    options.context = flags_.tokens + 4 * kTurn + 10 * flags_.bench.options.repetitions * kStep;
    options.drafting = false;
    KAKEYA_ASSIGN_OR_RETURN(auto session, engine_.create_session(options));
    KAKEYA_TRY(session->append(std::vector<TokenId>(5, 100)));
    KAKEYA_TRY(generate(*session, kTurn));
    KAKEYA_TRY(generate(*session, kTurn));
    return session;
  }

  // The median time of a token.
  static Result<double> generate(Session& session, std::int64_t tokens) {
    KAKEYA_ASSIGN_OR_RETURN(const GenerateResult result,
                            session.generate({.max_tokens = tokens,
                                              .sampling = {.temperature = 1.0F, .seed = 3},
                                              .draft_length = 0,
                                              .ignore_model_stop_ids = true}));
    std::vector<double> seconds;
    for (const RoundRecord& round : result.rounds) seconds.push_back(round.verify_seconds);
    return median(std::move(seconds));
  }

  Engine& engine_;
  const LongSessionFlags& flags_;
};

int long_session_bench(LongSessionFlags& flags) {
  auto engine = open_bench_engine(flags.bench);
  if (!engine) return report(engine.error());
  const auto result = LongSession(**engine, flags).measure();
  if (!result) return report(result.error());
  const double grown =
      static_cast<double>(result->resident_after) - static_cast<double>(result->resident_before);
  if (flags.bench.json) {
    nlohmann::ordered_json json = header_json(flags.bench, **engine, "long-session");
    json["tokens"] = flags.tokens;
    json["reserved_before"] = result->reserved_before;
    json["reserved_after"] = result->reserved_after;
    json["resident_before"] = result->resident_before;
    json["resident_after"] = result->resident_after;
    json["young_seconds_per_token"] = result->young_seconds;
    json["long_seconds_per_token"] = result->long_seconds;
    json["ratio"] = result->ratio;
    print_json(json);
    return kExitOk;
  }
  print_header(flags.bench, **engine, "a session that drops rows");
  print(
      "after {} tokens a token takes {:.3f} times what it takes at the beginning ({:.0f} against "
      "{:.0f} us, medians of sessions in turn)\n"
      "the ledger holds {}, {} at the beginning\n"
      "resident memory has grown by {:.2f} MiB: {:.2f} MiB are the ids of the tokens\n",
      flags.tokens, result->ratio, 1e6 * result->long_seconds, 1e6 * result->young_seconds,
      format_bytes(result->reserved_after), format_bytes(result->reserved_before),
      grown / (1 << 20), static_cast<double>(flags.tokens) * sizeof(TokenId) / (1 << 20));
  return kExitOk;
}

}  // namespace

void add_long_session_bench(CLI::App& bench, int& exit_code) {
  CLI::App* command = bench.add_subcommand(
      "long-session", "Time and memory of a session that drops rows, after very many tokens");
  auto flags = std::make_shared<LongSessionFlags>();
  flags->bench.model.window = 64;
  flags->bench.model.evicted_full = "drop";
  flags->bench.model.evicted_sliding = "drop";
  flags->bench.options.repetitions = 5;
  add_shape_flags(*command, flags->bench);
  command->add_option("--tokens", flags->tokens, "Tokens of the session (default: 200000)")
      ->check(CLI::Range(3000, 1 << 23))
      ->type_name("N");
  command
      ->add_option("--repetitions", flags->bench.options.repetitions,
                   "Repetitions, of ten steps each (default: 5)")
      ->check(CLI::Range(1, 1000))
      ->type_name("N");
  add_model_flags(*command, flags->bench.model);
  command->footer(
      "Without other options both kinds of layers drop all rows but the last 64.\n"
      "Example:\n  kakeya bench long-session --tokens 200000");
  command->callback([flags, &exit_code] { exit_code = long_session_bench(*flags); });
}

}  // namespace kakeya::cli
