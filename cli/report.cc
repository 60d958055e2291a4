#include "cli/report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/atomic_file.h"
#include "base/status.h"
#include "cli/output.h"
#include "cli/sha256.h"
#include "cli/terminal.h"

namespace kakeya::cli {
namespace {

std::string stop_name(const TextResult& result) {
  if (result.stopped_by_text) return "stop_string";
  if (result.tokens.stop_reason == StopReason::kCallback) return "interrupted";
  return std::string(stop_reason_name(result.tokens.stop_reason));
}

double tokens_per_second(const GenerateResult& result) {
  // The first token comes out of the prefill's logits; decoding made the others.
  const double decoded = static_cast<double>(result.ids.size()) - 1.0;
  return result.decode_seconds > 0.0 && decoded > 0.0 ? decoded / result.decode_seconds : 0.0;
}

// How many times faster than plain steps would have been; 0 if unknown.
double speedup(const GenerateResult& result) {
  return tokens_per_second(result) * result.plain_step_seconds;
}

// Sums and counts of the rounds.
struct RoundTotals {
  std::int64_t drafting = 0;  // rounds that drafted
  std::int64_t committed = 0;
  double draft_seconds = 0.0;
  double verify_seconds = 0.0;
  std::uint64_t bytes = 0;
};

RoundTotals total_of(const std::vector<RoundRecord>& rounds) {
  RoundTotals totals;
  for (const RoundRecord& round : rounds) {
    totals.drafting += round.drafted > 0 ? 1 : 0;
    totals.committed += round.committed;
    totals.draft_seconds += round.draft_seconds;
    totals.verify_seconds += round.verify_seconds;
    totals.bytes += round.bytes;
  }
  return totals;
}

double ratio(double a, double b) {
  return b > 0.0 ? a / b : 0.0;
}

nlohmann::ordered_json rounds_json(const std::vector<RoundRecord>& rounds) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const RoundRecord& round : rounds) {
    list.push_back({{"kind", draft_kind_name(round.kind)},
                    {"reason", draft_reason_name(round.reason)},
                    {"drafted", round.drafted},
                    {"accepted", round.accepted},
                    {"committed", round.committed},
                    {"start_seconds", round.start_seconds},
                    {"draft_seconds", round.draft_seconds},
                    {"verify_seconds", round.verify_seconds},
                    {"bytes", round.bytes}});
  }
  return list;
}

nlohmann::ordered_json logprobs_json(const std::vector<TokenLogprobs>& logprobs) {
  const auto entry = [](const TokenLogprob& token) {
    return nlohmann::ordered_json{{"id", token.id}, {"logprob", token.logprob}};
  };
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const TokenLogprobs& position : logprobs) {
    nlohmann::ordered_json& json = list.emplace_back(entry(position.token));
    json["top"] = nlohmann::ordered_json::array();
    for (const TokenLogprob& token : position.top) json["top"].push_back(entry(token));
  }
  return list;
}

}  // namespace

Result<std::shared_ptr<Engine>> open_engine(const ModelFlags& flags) {
  KAKEYA_ASSIGN_OR_RETURN(EngineOptions options, engine_options(flags));
  ProgressBar bar("loading");
  options.on_progress = [&](std::uint64_t done, std::uint64_t total) { bar.update(done, total); };
  return Engine::open(options);
}

nlohmann::ordered_json generation_json(const TextResult& result) {
  const GenerateResult& tokens = result.tokens;
  const RoundTotals totals = total_of(tokens.rounds);
  const auto rounds = static_cast<double>(tokens.rounds.size());
  nlohmann::ordered_json json = {
      {"output_ids", tokens.ids},
      {"text", result.text},
      {"stop_reason", stop_name(result)},
      {"prefill_tokens", tokens.prefill_tokens},
      {"prefill_seconds", tokens.prefill_seconds},
      {"decode_seconds", tokens.decode_seconds},
      {"tokens_per_second", tokens_per_second(tokens)},
      {"rounds", tokens.rounds.size()},
      {"drafting_rounds", totals.drafting},
      {"drafted", tokens.drafted},
      {"accepted", tokens.accepted},
      {"acceptance_length", tokens.acceptance_length()},
      {"tokens_per_round", ratio(static_cast<double>(totals.committed), rounds)},
      {"draft_seconds", totals.draft_seconds},
      {"verify_seconds", totals.verify_seconds},
      {"bytes", totals.bytes},
      {"plain_step_seconds", tokens.plain_step_seconds},
      {"speedup", speedup(tokens)},
      {"round_records", rounds_json(tokens.rounds)},
      {"output_sha256", ids_sha256(tokens.ids)}};
  if (!tokens.logprobs.empty()) json["logprobs"] = logprobs_json(tokens.logprobs);
  return json;
}

std::string generation_summary(const TextResult& result, const std::string& backend) {
  const GenerateResult& tokens = result.tokens;
  std::string text =
      fmt::format("[{} tokens, {:.1f} tokens/s; prompt {} tokens in {:.3f} s; {}; {}]",
                  tokens.ids.size(), tokens_per_second(tokens), tokens.prefill_tokens,
                  tokens.prefill_seconds, backend, stop_name(result));
  const RoundTotals totals = total_of(tokens.rounds);
  if (totals.drafting > 0) {
    text += fmt::format(
        "\n[drafted {} of {} rounds: acceptance length {:.2f} ({} of {} drafts accepted); "
        "{:.2f} tokens a round",
        totals.drafting, tokens.rounds.size(), tokens.acceptance_length(), tokens.accepted,
        tokens.drafted,
        ratio(static_cast<double>(totals.committed), static_cast<double>(tokens.rounds.size())));
    // A few plain steps, the first ones among them, say little about plain decoding.
    constexpr std::ptrdiff_t kFewestSteps = 8;
    const std::ptrdiff_t steps = std::ssize(tokens.rounds) - totals.drafting;
    if (tokens.plain_step_seconds > 0.0 && steps >= kFewestSteps) {
      text += fmt::format("; {:.2f} times plain decoding ({:.2f} ms a step)", speedup(tokens),
                          1e3 * tokens.plain_step_seconds);
    }
    text += "]";
  }
  return text;
}

Status write_trace(const std::string& path, const GenerateResult& result) {
  nlohmann::ordered_json events = nlohmann::ordered_json::array();
  // Complete events ("X") of the Chrome trace format; times in microseconds.
  const auto add = [&](const char* name, double start, double seconds,
                       nlohmann::ordered_json arguments) {
    events.push_back({{"name", name},
                      {"ph", "X"},
                      {"pid", 1},
                      {"tid", 1},
                      {"ts", 1e6 * start},
                      {"dur", 1e6 * seconds},
                      {"args", std::move(arguments)}});
  };
  const double origin = result.prefill_seconds;
  add("prefill", 0.0, result.prefill_seconds, {{"tokens", result.prefill_tokens}});
  for (const RoundRecord& round : result.rounds) {
    const double start = origin + round.start_seconds;
    if (round.drafted > 0) {
      add("draft", start, round.draft_seconds,
          {{"kind", draft_kind_name(round.kind)}, {"drafted", round.drafted}});
    }
    add(round.drafted > 0 ? "verify" : "step", start + round.draft_seconds, round.verify_seconds,
        {{"rows", round.drafted + 1},
         {"accepted", round.accepted},
         {"committed", round.committed},
         {"bytes", round.bytes}});
  }
  const nlohmann::ordered_json trace = {{"displayTimeUnit", "ms"}, {"traceEvents", events}};
  return write_text(path, json_text(trace, 1));
}

Status write_text(const std::string& path, const std::string& text) {
  std::error_code unknown;  // then AtomicFile says what is wrong
  const auto status = std::filesystem::status(path, unknown);
  const bool device =
      std::filesystem::is_character_file(status) || std::filesystem::is_fifo(status);
  if (!device) {
    KAKEYA_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path, FileAccess::kUmask));
    KAKEYA_TRY(file.write_at(0, std::as_bytes(std::span(text))));
    return file.commit();
  }
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return error(StatusCode::kNotFound, "cannot write {}", path);
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !written) return data_loss("cannot write all of {}", path);
  return {};
}

Status check_writable(const std::string& path) {
  std::error_code unknown;
  const auto status = std::filesystem::status(path, unknown);
  if (std::filesystem::is_character_file(status) || std::filesystem::is_fifo(status)) return {};
  auto probe = AtomicFile::create(path, FileAccess::kUmask);
  return probe ? Status() : Status(Unexpected(probe.error()));
}

bool stdin_is_terminal() {
  return ::isatty(STDIN_FILENO) == 1;
}

Result<bool> read_line(std::string& line) {
  line.clear();
  bool too_long = false;
  errno = 0;
  int character = 0;
  while ((character = std::getc(stdin)) != EOF && character != '\n') {
    too_long = too_long || line.size() >= kMostPromptBytes;
    if (!too_long) line.push_back(static_cast<char>(character));
  }
  if (character == EOF && errno == EINTR) {
    std::clearerr(stdin);
    return false;
  }
  if (character == EOF && std::ferror(stdin) != 0) {
    return error(StatusCode::kUnavailable, "cannot read standard input: {}", std::strerror(errno));
  }
  if (character == EOF && line.empty()) return false;
  if (too_long) {
    return invalid_argument("a message is over {} MiB: no prompt is", kMostPromptBytes >> 20);
  }
  while (!line.empty() && line.back() == '\r') line.pop_back();
  return true;
}

}  // namespace kakeya::cli
