// Any bytes as a tokenizer.json, and what it makes of texts and ids: no crash, no hang, and pieces
// of a stream that add up to the decoded whole.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "kakeya/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = kakeya::Tokenizer::parse(input);
  if (!tokenizer) return 0;

  // The file itself is a text too, one with its own tokens in it.
  for (const std::string_view text :
       {input.substr(0, 2000), std::string_view(" a\u00e9\xff<bos>\n\n  b\u2581")}) {
    std::vector<kakeya::TokenId> ids;
    for (const bool parse_special : {true, false}) {
      const auto more = tokenizer->encode(text, {.parse_special = parse_special});
      if (!more) continue;
      if (more->size() < tokenizer->least_tokens(text.size())) std::abort();
      ids.insert(ids.end(), more->begin(), more->end());
    }
    for (std::size_t i = 0; i < size && i < 200; ++i) ids.push_back(data[i] - 1);
    for (const bool skip_special : {true, false}) {
      kakeya::StreamDecoder decoder(*tokenizer, skip_special);
      std::string streamed;
      for (const kakeya::TokenId id : ids) decoder.push(id, streamed);
      decoder.finish(streamed);
      if (streamed != tokenizer->decode(ids, skip_special)) std::abort();
    }
  }
  return 0;
}
