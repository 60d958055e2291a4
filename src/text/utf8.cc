#include "text/utf8.h"

namespace kakeya {
namespace {

// How many bytes follow a lead byte, and the range of the first of them (Unicode 15, table 3-7).
struct LeadByte {
  std::size_t num_continuation;  // 0: not a lead byte
  unsigned char low;
  unsigned char high;
};

LeadByte classify_lead_byte(unsigned char lead) {
  if (lead >= 0xC2 && lead <= 0xDF) return {1, 0x80, 0xBF};
  if (lead == 0xE0) return {2, 0xA0, 0xBF};
  if (lead == 0xED) return {2, 0x80, 0x9F};
  if (lead >= 0xE1 && lead <= 0xEF) return {2, 0x80, 0xBF};
  if (lead == 0xF0) return {3, 0x90, 0xBF};
  if (lead >= 0xF1 && lead <= 0xF3) return {3, 0x80, 0xBF};
  if (lead == 0xF4) return {3, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Step read_utf8(std::string_view text, std::size_t offset) {
  const auto lead = static_cast<unsigned char>(text[offset]);
  if (lead < 0x80) return {lead, 1, true, false};
  const LeadByte info = classify_lead_byte(lead);
  if (info.num_continuation == 0) return {0xFFFD, 1, false, false};

  char32_t code_point = lead & (0x3F >> info.num_continuation);
  for (std::size_t i = 1; i <= info.num_continuation; ++i) {
    if (offset + i >= text.size()) return {0xFFFD, i, false, true};
    const auto byte = static_cast<unsigned char>(text[offset + i]);
    const unsigned char low = i == 1 ? info.low : 0x80;
    const unsigned char high = i == 1 ? info.high : 0xBF;
    if (byte < low || byte > high) return {0xFFFD, i, false, false};
    code_point = (code_point << 6) | (byte & 0x3F);
  }
  return {code_point, info.num_continuation + 1, true, false};
}

void append_utf8(char32_t code_point, std::string& out) {
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    out += static_cast<char>(0xC0 | (code_point >> 6));
    out += static_cast<char>(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    out += static_cast<char>(0xE0 | (code_point >> 12));
    out += static_cast<char>(0x80 | ((code_point >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code_point & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (code_point >> 18));
    out += static_cast<char>(0x80 | ((code_point >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((code_point >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code_point & 0x3F));
  }
}

bool is_valid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Step step = read_utf8(text, i);
    if (!step.valid) return false;
    i += step.size;
  }
  return true;
}

void append_valid_utf8(std::string_view text, std::string& out) {
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Step step = read_utf8(text, i);
    out += step.valid ? text.substr(i, step.size) : kReplacementCharacter;
    i += step.size;
  }
}

std::size_t count_characters(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

}  // namespace kakeya
