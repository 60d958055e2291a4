#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/status.h"
#include "text/utf8.h"

namespace kakeya {
namespace {

constexpr std::size_t kMaxPatternBytes = 64 * 1024;

// Backtracking steps of a match a byte of text; the published pre-tokenizers need fewer than four.
constexpr std::uint64_t kStepsPerByte = 64;
constexpr std::uint64_t kMinSteps = 100'000;
constexpr std::uint64_t kMostSteps = std::uint64_t{1} << 29;
constexpr std::uint32_t kHeapLimitKib = 64 * 1024;

template <auto free_function>
struct FreeWith {
  template <typename T>
  void operator()(T* pointer) const {
    free_function(pointer);
  }
};

using CompileContext =
    std::unique_ptr<pcre2_compile_context, FreeWith<pcre2_compile_context_free_8>>;
using MatchContext = std::unique_ptr<pcre2_match_context, FreeWith<pcre2_match_context_free_8>>;
using MatchData = std::unique_ptr<pcre2_match_data, FreeWith<pcre2_match_data_free_8>>;

}  // namespace

struct Regex::Code {
  std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code = {nullptr, pcre2_code_free};
};

Regex::Regex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Result<Regex> Regex::compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return data_loss("[tokenizer] a regular expression has {} bytes, more than {}", pattern.size(),
                     kMaxPatternBytes);
  }
  const CompileContext context(pcre2_compile_context_create(nullptr));
  if (!context) return error(StatusCode::kResourceExhausted, "[tokenizer] out of memory");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);

  int error_number = 0;
  PCRE2_SIZE error_offset = 0;
  auto code = std::make_unique<Code>();
  code->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error_number,
                                 &error_offset, context.get()));
  if (!code->code) {
    std::array<PCRE2_UCHAR, 256> message{};
    pcre2_get_error_message(error_number, message.data(), message.size());
    return data_loss("[tokenizer] bad regular expression at byte {}: {}", error_offset,
                     reinterpret_cast<const char*>(message.data()));
  }
  // Only a speed-up: where there is no JIT, matching interprets.
  pcre2_jit_compile(code->code.get(), PCRE2_JIT_COMPLETE);
  return Regex(std::move(code));
}

Status Regex::find_all(std::string_view text,
                       MatchTime& time,
                       std::vector<TextRange>& matches) const {
  const MatchData data(pcre2_match_data_create_from_pattern(code_->code.get(), nullptr));
  const MatchContext context(pcre2_match_context_create(nullptr));
  if (!data || !context) return error(StatusCode::kResourceExhausted, "[tokenizer] out of memory");
  const std::uint64_t steps =
      std::clamp<std::uint64_t>(text.size() * kStepsPerByte, kMinSteps, kMostSteps);
  pcre2_set_match_limit(context.get(), static_cast<std::uint32_t>(steps));
  pcre2_set_heap_limit(context.get(), kHeapLimitKib);

  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const auto match_from = [&](std::size_t offset, std::uint32_t options) {
    return pcre2_match(code_->code.get(), subject, text.size(), offset,
                       options | PCRE2_NO_UTF_CHECK, data.get(), context.get());
  };
  for (std::size_t offset = 0; offset < text.size();) {
    int outcome = match_from(offset, 0);
    if (outcome == PCRE2_ERROR_JIT_STACKLIMIT) outcome = match_from(offset, PCRE2_NO_JIT);
    if (outcome == PCRE2_ERROR_NOMATCH) return {};
    if (outcome < 0 || time.is_over()) {
      return data_loss(
          "[tokenizer] regular expression: expected matches within {} steps each and {:.2g} s in "
          "all, got none at byte {} of {}",
          steps, time.most_seconds(), offset, text.size());
    }
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
    // \K inside a lookahead can put the end of a match before its start or before the last match.
    if (range[0] < offset || range[1] < range[0]) return {};
    if (range[1] > range[0]) {
      matches.push_back({range[0], range[1]});
      offset = range[1];
    } else {
      if (range[0] >= text.size()) return {};
      offset = range[0] + read_utf8(text, range[0]).size;
    }
  }
  return {};
}

}  // namespace kakeya
