#include "report.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/status.h"
#include "terminal.h"

namespace kakeya::cli {
namespace {

std::string stop_name(const TextResult& result) {
  if (result.stopped_by_text) return "stop_string";
  if (result.tokens.stop_reason == StopReason::kCallback) return "interrupted";
  return std::string(stop_reason_name(result.tokens.stop_reason));
}

double tokens_per_second(const GenerateResult& result) {
  // The first token comes out of the prefill's logits; decoding made the others.
  return result.decode_seconds > 0.0 ? static_cast<double>(result.rounds) / result.decode_seconds
                                     : 0.0;
}

}  // namespace

Result<std::unique_ptr<EngineImpl>> open_engine(const ModelFlags& flags) {
  KAKEYA_ASSIGN_OR_RETURN(EngineOptions options, engine_options(flags));
  ProgressBar bar("loading");
  options.on_progress = [&](std::uint64_t done, std::uint64_t total) { bar.update(done, total); };
  return EngineImpl::open(options);
}

std::string ids_sha256(std::span<const TokenId> ids) {
  std::string bytes;
  for (const TokenId id : ids) {
    const auto value = static_cast<std::uint32_t>(id);
    for (int shift = 0; shift < 32; shift += 8) {
      bytes.push_back(static_cast<char>((value >> shift) & 0xff));
    }
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1) {
    return "";
  }
  std::string text;
  for (unsigned int i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

nlohmann::ordered_json generation_json(const TextResult& result) {
  const GenerateResult& tokens = result.tokens;
  return {{"output_ids", tokens.ids},
          {"text", result.text},
          {"stop_reason", stop_name(result)},
          {"prefill_tokens", tokens.prefill_tokens},
          {"prefill_seconds", tokens.prefill_seconds},
          {"decode_seconds", tokens.decode_seconds},
          {"tokens_per_second", tokens_per_second(tokens)},
          {"rounds", tokens.rounds},
          {"drafted", 0},
          {"accepted", 0},
          {"acceptance_length", 1.0},
          {"output_sha256", ids_sha256(tokens.ids)}};
}

std::string generation_summary(const TextResult& result, const std::string& backend) {
  const GenerateResult& tokens = result.tokens;
  return fmt::format("[{} tokens, {:.1f} tokens/s; prompt {} tokens in {:.3f} s; {}; {}]",
                     tokens.ids.size(), tokens_per_second(tokens), tokens.prefill_tokens,
                     tokens.prefill_seconds, backend, stop_name(result));
}

bool stdin_is_terminal() {
  return ::isatty(STDIN_FILENO) == 1;
}

bool read_line(std::string& line) {
  line.clear();
  char* buffer = nullptr;
  std::size_t capacity = 0;
  errno = 0;
  const ssize_t size = ::getline(&buffer, &capacity, stdin);
  if (size > 0) line.assign(buffer, static_cast<std::size_t>(size));
  std::free(buffer);
  if (size < 0) {
    if (errno == EINTR) std::clearerr(stdin);
    return false;
  }
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  return true;
}

}  // namespace kakeya::cli
