#include "text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/status.h"
#include "text/utf8.h"

namespace kakeya {
namespace {

// The library sorts combining characters by insertion, in quadratic time.
constexpr std::size_t kMaxCombiningRun = 1000;

struct FreeWithLibc {
  void operator()(utf8proc_uint8_t* pointer) const { std::free(pointer); }
};

// Appends to `out`, as long as it does not come to more than `most` bytes; returns whether it did
// not.
bool append_replaced(std::string_view text,
                     const ReplaceStep& step,
                     std::size_t most,
                     std::string& out) {
  std::size_t begin = 0;
  for (std::size_t i = text.find(step.from); i != std::string_view::npos && !step.from.empty();
       i = text.find(step.from, begin)) {
    out.append(text, begin, i - begin).append(step.to);
    begin = i + step.from.size();
    if (out.size() > most) return false;
  }
  out.append(text, begin);
  return out.size() <= most;
}

void append_composed(std::string_view text, std::string& out) {
  utf8proc_uint8_t* composed = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &composed,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, FreeWithLibc> owner(composed);
  if (size < 0) {
    out += text;  // only when it cannot allocate: the text is valid
    return;
  }
  out.append(reinterpret_cast<const char*>(composed), static_cast<std::size_t>(size));
}

// Appends the normal form of `text`. It is composed in sections that begin at an ASCII character:
// such a character never joins with what precedes it, and ASCII alone needs no work.
void append_nfc(std::string_view text, std::string& out) {
  std::size_t begin = 0;  // of the section not yet appended
  bool section_is_ascii = true;
  std::size_t combining_run = 0;
  const auto close_section = [&](std::size_t end) {
    const std::string_view section = text.substr(begin, end - begin);
    if (section_is_ascii) {
      out += section;
    } else {
      append_composed(section, out);
    }
    begin = end;
    section_is_ascii = true;
  };
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Step step = read_utf8(text, i);
    if (step.size == 1) {
      if (!section_is_ascii) close_section(i);
      combining_run = 0;
    } else {
      // The ASCII before the last character cannot change, but that character can.
      if (section_is_ascii && i > begin + 1) close_section(i - 1);
      const auto* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(step.code_point));
      combining_run = property->combining_class == 0 ? 0 : combining_run + 1;
      if (combining_run >= kMaxCombiningRun) {
        close_section(i);
        combining_run = 0;
      }
      section_is_ascii = false;
    }
    i += step.size;
  }
  close_section(text.size());
}

}  // namespace

void Normalizer::add(NormalizerStep step) {
  steps_.push_back(std::move(step));
}

Result<std::string> Normalizer::apply(std::string_view text) const {
  const std::size_t most = text.size() * kMostGrowth + kMostGrowthBytes;
  std::string current(text);
  for (const NormalizerStep& step : steps_) {
    std::string next;
    next.reserve(current.size());
    if (const auto* replace = std::get_if<ReplaceStep>(&step)) {
      if (!append_replaced(current, *replace, most, next)) {
        return data_loss("[tokenizer] normalizer: expected at most {} times a text, got more",
                         kMostGrowth);
      }
    } else if (const auto* prepend = std::get_if<PrependStep>(&step)) {
      if (!current.empty()) next = prepend->text + current;
    } else {
      append_nfc(current, next);
    }
    current = std::move(next);
  }
  return current;
}

std::size_t Normalizer::most_shrink() const {
  // Composition makes three characters of three bytes one, or four of two.
  constexpr std::size_t kComposition = 4;
  constexpr std::size_t kMost = std::size_t{1} << 20;
  std::size_t shrink = 1;
  for (const NormalizerStep& step : steps_) {
    if (std::holds_alternative<PrependStep>(step)) continue;
    std::size_t factor = kComposition;
    if (const auto* replace = std::get_if<ReplaceStep>(&step)) {
      if (replace->to.empty()) return 0;
      factor = std::max<std::size_t>(
          1, (replace->from.size() + replace->to.size() - 1) / replace->to.size());
    }
    shrink *= factor;
    if (shrink > kMost) return 0;
  }
  return shrink;
}

}  // namespace kakeya
