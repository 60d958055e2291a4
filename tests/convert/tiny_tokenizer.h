// A tokenizer.json of three tokens, in the forms that GGUF files can name.
#pragma once

#include <string>

namespace kakeya {

// A tokenizer.json of Gemma 4's form, or Qwen's. `vocabulary` is the inside of an object.
inline std::string tiny_tokenizer_json(bool gemma4,
                                       const std::string& vocabulary = R"("a": 0, "b": 1, "ab": 2)",
                                       const std::string& merges = R"("a b")") {
  const std::string model =
      R"("model": {"type": "BPE", "vocab": {)" + vocabulary + R"(}, "merges": [)" + merges + "]";
  if (gemma4) {
    return R"({"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
      "pre_tokenizer": {"type": "Split", "pattern": {"String": " "},
        "behavior": "MergedWithPrevious", "invert": false},
      "decoder": {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
        {"type": "ByteFallback"}, {"type": "Fuse"}]},
      )" + model +
           R"(, "fuse_unk": true, "byte_fallback": true}})";
  }
  return R"({"normalizer": {"type": "NFC"},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
        "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}]},
    "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
      "use_regex": false},
    )" + model +
         "}}";
}

}  // namespace kakeya
