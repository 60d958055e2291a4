// Shared by the text tests: reading fixtures and making random text.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>

#include "kakeya/tokenizer.h"
#include "text/utf8.h"

namespace kakeya {

inline std::string read_text_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::stringstream content;
  content << file.rdbuf();
  return content.str();
}

inline std::string data_path(const std::string& relative) {
  return std::string(KAKEYA_TEST_DATA) + "/" + relative;
}

inline nlohmann::json read_json_file(const std::string& path) {
  return nlohmann::json::parse(read_text_file(path));
}

inline Tokenizer load_tokenizer(const std::string& path) {
  auto tokenizer = Tokenizer::load(path);
  if (!tokenizer) throw std::runtime_error(tokenizer.error().message());
  return std::move(*tokenizer);
}

inline Tokenizer demo_tokenizer() {
  return load_tokenizer(std::string(KAKEYA_DEMO_MODEL) + "/tokenizer.json");
}

// The published GPT-2 vocabulary and merges as a tokenizer.json.
inline std::string gpt2_tokenizer_json() {
  const std::string folder = data_path("tokenizers/gpt2/");
  nlohmann::json merges = nlohmann::json::array();
  std::istringstream lines(read_text_file(folder + "merges.txt"));
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && !line.starts_with("#version")) merges.push_back(line);
  }
  const nlohmann::json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}};
  const nlohmann::json end_of_text = {
      {"id", 50256}, {"content", "<|endoftext|>"}, {"special", true}, {"normalized", true}};
  const nlohmann::json model = {{"type", "BPE"},
                                {"dropout", nullptr},
                                {"unk_token", nullptr},
                                {"continuing_subword_prefix", ""},
                                {"end_of_word_suffix", ""},
                                {"fuse_unk", false},
                                {"vocab", read_json_file(folder + "vocab.json")},
                                {"merges", std::move(merges)}};
  const nlohmann::json tokenizer = {{"version", "1.0"},
                                    {"added_tokens", {end_of_text}},
                                    {"normalizer", nullptr},
                                    {"pre_tokenizer", byte_level},
                                    {"post_processor", byte_level},
                                    {"decoder", byte_level},
                                    {"model", model}};
  return tokenizer.dump();
}

inline Tokenizer gpt2_tokenizer() {
  auto tokenizer = Tokenizer::parse(gpt2_tokenizer_json());
  if (!tokenizer) throw std::runtime_error(tokenizer.error().message());
  return std::move(*tokenizer);
}

// Random scalar values of every plane, most of them from the first two.
inline std::string random_text(std::mt19937& random, std::size_t max_characters) {
  static constexpr char32_t kPlanes[] = {0, 0, 0, 0, 1, 1, 2, 3, 4, 10, 14, 15, 16};
  const std::size_t length = random() % (max_characters + 1);
  const bool ascii = random() % 3 == 0;
  std::string text;
  for (std::size_t i = 0; i < length; ++i) {
    char32_t code_point = random() % 128;
    if (!ascii) code_point = (kPlanes[random() % std::size(kPlanes)] << 16) | (random() & 0xFFFF);
    if (code_point >= 0xD800 && code_point < 0xE000) code_point = ' ';
    append_utf8(code_point, text);
  }
  return text;
}

}  // namespace kakeya
