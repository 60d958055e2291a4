// Calls of tools told from text, in every format and however the text comes in pieces.
#include "service/tool_parser.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "property.h"
#include "service/json_checker.h"

namespace kakeya::service {
namespace {

using nlohmann::json;
using Calls = std::vector<std::pair<std::string, std::string>>;
using testing::ElementsAre;
using testing::Pair;

constexpr ToolFormat kFormats[] = {ToolFormat::kGemma, ToolFormat::kQwenJson, ToolFormat::kQwenXml};

// Content with "#INDEX#" where a call began, and the calls.
struct Read {
  std::string content = {};
  Calls calls = {};

  bool operator==(const Read&) const = default;
};

void PrintTo(const Read& read, std::ostream* out) {
  *out << read.content << testing::PrintToString(read.calls);
}

void add(const ToolOutput& output, Read& read) {
  std::size_t done = 0;
  for (const ToolCallPiece& call : output.calls) {
    read.content += output.content.substr(done, call.at - done);
    done = call.at;
    if (!call.id.empty()) {
      read.content += fmt::format("#{}#", call.index);
      read.calls.emplace_back(call.name, "");
    }
    ASSERT_EQ(call.index, read.calls.size() - 1);
    read.calls.back().second += call.arguments;
  }
  read.content += output.content.substr(done);
}

// Special tokens of Gemma, where text spells them.
std::size_t marker_at(std::string_view text) {
  for (const std::string_view marker : {"<|tool_call>", "<tool_call|>", "<|\"|>"}) {
    if (text.starts_with(marker)) return marker.size();
  }
  return 0;
}

// Reads the text in pieces whose sizes `next_size` says.
template <typename NextSize>
Read read_in_pieces(ToolParser& parser,
                    ToolFormat format,
                    std::string_view text,
                    NextSize next_size) {
  Read read;
  while (!text.empty()) {
    ToolOutput output;
    const std::size_t marker = format == ToolFormat::kGemma ? marker_at(text) : 0;
    std::size_t size = marker > 0 ? marker : std::clamp<std::size_t>(next_size(), 1, text.size());
    if (marker > 0) {
      parser.push_marker(text.substr(0, size), output);
    } else {
      for (std::size_t i = 1; i < size && format == ToolFormat::kGemma; ++i) {
        if (marker_at(text.substr(i)) > 0) size = i;
      }
      parser.push_text(text.substr(0, size), output);
    }
    add(output, read);
    text.remove_prefix(size);
  }
  ToolOutput rest;
  parser.finish(rest);
  add(rest, read);
  return read;
}

const std::vector<std::string>& tools() {
  static const std::vector<std::string> kTools = {
      R"({"type":"function","function":{"name":"f","parameters":{"properties":{)"
      R"("text":{"type":"string"},"count":{"type":"integer"},"any":{}}}}})"};
  return kTools;
}

// Reads the text as a whole, and expects as much of pieces of 1, 2, 3 and 5 bytes.
Read read(ToolFormat format, std::string_view text, bool one_call = false) {
  const auto all = make_tool_parser(format, tools(), one_call);
  const Read whole = read_in_pieces(*all, format, text, [&] { return text.size(); });
  for (const std::size_t size : {1, 2, 3, 5}) {
    const auto parser = make_tool_parser(format, tools(), one_call);
    EXPECT_EQ(read_in_pieces(*parser, format, text, [size] { return size; }), whole) << text;
  }
  return whole;
}

TEST(ToolParser, ReadsGemmasCalls) {
  const Read some = read(
      ToolFormat::kGemma,
      R"(Well.<|tool_call>call:get_weather{city:<|"|>Bern "x"<|"|>,days:3,exact:true,list:[1,-2.5e3,)"
      R"(<|"|>a<|"|>],more:{a:null,<|"|>b:c<|"|>:{}},none:None,void:[]}<tool_call|>)"
      R"(<|tool_call>call:now{}<tool_call|>)");
  EXPECT_EQ(some.content, "Well.#0##1#");
  EXPECT_THAT(
      some.calls,
      ElementsAre(
          Pair("get_weather", R"({"city":"Bern \"x\"","days":3,"exact":true,"list":[1,-2.5e3,"a"],)"
                              R"("more":{"a":null,"b:c":{}},"none":null,"void":[]})"),
          Pair("now", "{}")));
  // Blanks as no template writes them, and a text with line ends, brackets and words.
  EXPECT_THAT(
      read(ToolFormat::kGemma,
           "<|tool_call>call:f{ a: 1 , b: [ 2 , 3 ] , c: <|\"|>\n}<tool> ,\t<|\"|> } <tool_call|> "
           "\n <|tool_call>call:g{}")
          .calls,
      ElementsAre(Pair("f", R"({"a":1,"b":[2,3],"c":"\n}<tool> ,\t"})"), Pair("g", "{}")));
}

TEST(ToolParser, ReadsQwensJson) {
  const Read some = read(ToolFormat::kQwenJson,
                         "Well.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": "
                         "{\"city\": \"a\\\"}\", \"n\": [1, {}]}}\n</tool_call>\n<tool_call>\n"
                         "{\"name\":\"now\",\"arguments\":{}}\n</tool_call>\n");
  EXPECT_EQ(some.content, "Well.#0##1#");
  EXPECT_THAT(some.calls, ElementsAre(Pair("get_weather", R"({"city": "a\"}", "n": [1, {}]})"),
                                      Pair("now", "{}")));
  // Other orders, further members, no arguments, no end.
  EXPECT_THAT(read(ToolFormat::kQwenJson,
                   R"(<tool_call>{"arguments":{"b":1,"a":2},"name":"f"}</tool_call>)"
                   R"(<tool_call>{"id":[1],"name":"g","arguments":{"x":{}}}</tool_call>)"
                   R"(<tool_call>{"name":"h"}</tool_call>)"
                   R"(<tool_call>{"name":"i","arguments":{"a":1},"id":"7"}<tool_call>)"
                   R"({"name":"j","arguments":{})")
                  .calls,
              ElementsAre(Pair("f", R"({"b":1,"a":2})"), Pair("g", R"({"x":{}})"), Pair("h", "{}"),
                          Pair("i", R"({"a":1})"), Pair("j", "{}")));
}

TEST(ToolParser, ReadsQwensTags) {
  const Read some = read(
      ToolFormat::kQwenXml,
      "Well.\n\n<tool_call>\n<function=f>\n<parameter=text>\n\n12 \"a\"\n</b>\n\n</parameter>\n"
      "<parameter=count>\n12\n</parameter>\n<parameter=any>\n[1, \"a\"]\n</parameter>\n"
      "<parameter=other>\na < b\n</parameter>\n<parameter=flag>\nTrue\n</parameter>\n"
      "</function>\n</tool_call>\n<tool_call>\n<function=g>\n</function>\n</tool_call>");
  EXPECT_EQ(some.content, "Well.#0##1#");
  EXPECT_THAT(some.calls, ElementsAre(Pair("f", R"({"text":"\n12 \"a\"\n</b>\n","count":12,)"
                                                R"("any":[1, "a"],"other":"a < b","flag":true})"),
                                      Pair("g", "{}")));
  // Values on the line of their tags, and one that is not closed.
  EXPECT_THAT(read(ToolFormat::kQwenXml,
                   "<tool_call><function=f><parameter=text>a\n<</parameter><parameter=text>"
                   "</parameter></function></tool_call><tool_call><function=f><parameter=text>\nab")
                  .calls,
              ElementsAre(Pair("f", R"({"text":"a\n<","text":""})"), Pair("f", R"({"text":"ab)")));
}

TEST(ToolParser, TextThatIsNoCallIsContentAsItWasWritten) {
  for (const ToolFormat format : kFormats) {
    for (const std::string text : {"",
                                   "Hello.\n\n\nWorld \n",
                                   "a <tool <tool_call",
                                   "\n<",
                                   "<tool_call> is a tag\n",
                                   "<tool_call>\n[1]</tool_call>",
                                   "<tool_call>\n{\"a\":1}</tool_call>\n\n",
                                   "<|tool_call>",
                                   "<tool_call|>x",
                                   "<|\"|>",
                                   "<|tool_call>call:",
                                   "<|tool_call>called",
                                   "x<|tool_call> y",
                                   "<|tool_call>call:a b{}<tool_call|>",
                                   "<|tool_call>call:{}<tool_call|>",
                                   "</tool_call>",
                                   "<|tool_call>call:f<tool_call|>",
                                   "<|tool_call><|tool_call>",
                                   "<tool_call>{\"name\":7,\"arguments\":{}}</tool_call>",
                                   "<tool_call>\n<function=",
                                   "<tool_call>{\"name\":\"f\",\"arguments\":[1]}</tool_call>",
                                   "<tool_call>\n<function=>\n</function>",
                                   "<tool_call><function f>",
                                   "<function=f>\n</function>",
                                   "{\"name\":\"f\",\"arguments\":{}}"}) {
      EXPECT_EQ(read(format, text), Read({.content = text})) << static_cast<int>(format);
    }
  }
}

TEST(ToolParser, WhatHasGoneOutOfABrokenCallStays) {
  const auto expect = [](ToolFormat format, std::string_view text, std::string_view arguments,
                         std::string_view content) {
    EXPECT_EQ(read(format, text),
              Read({.content = std::string(content), .calls = {{"f", std::string(arguments)}}}));
  };
  expect(ToolFormat::kGemma, "<|tool_call>call:f{a:1,b:two}<tool_call|> x", R"({"a":1,"b":)",
         "#0#two}<tool_call|> x");
  expect(ToolFormat::kGemma, "<|tool_call>call:f{a:<|\"|>ab", R"({"a":"ab)", "#0#");
  expect(ToolFormat::kGemma, "<|tool_call>call:f{a:<|\"|>ab<tool_call|>", R"({"a":"ab)",
         "#0#<tool_call|>");
  expect(ToolFormat::kGemma, "<|tool_call>call:f{a:[1}", R"({"a":[1)", "#0#}");
  expect(ToolFormat::kGemma, "<|tool_call>call:f{a:01}", R"({"a":)", "#0#01}");
  expect(ToolFormat::kQwenJson, R"(<tool_call>{"name":"f","arguments":{"a":oops}})", R"({"a":)",
         "#0#oops}}");
  expect(ToolFormat::kQwenXml, "<tool_call><function=f><parameter=count>\n1\n</para", "{",
         "#0#<parameter=count>\n1\n</para");
  expect(ToolFormat::kQwenXml, "<tool_call><function=f>\nx", "{", "#0#\nx");
}

TEST(ToolParser, BlanksBetweenCallsAreNoContentAndTextIs) {
  const std::pair<ToolFormat, const char*> kCalls[] = {
      {ToolFormat::kGemma, "<|tool_call>call:f{}<tool_call|>"},
      {ToolFormat::kQwenJson, "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"},
      {ToolFormat::kQwenXml, "<tool_call>\n<function=f>\n</function>\n</tool_call>"}};
  for (const auto& [format, call] : kCalls) {
    EXPECT_EQ(read(format, fmt::format("a {0} \n{0}\n and\n b{0}\n", call)).content,
              "a #0##1#\n and\n b#2#");
    // No call behind blanks: they are text then.
    EXPECT_EQ(read(format, fmt::format("{} <tool_call> x", call)).content, "#0# <tool_call> x");
    EXPECT_EQ(read(format, fmt::format("{} \n{} more", call, call), true).content, "#0#");
  }
  EXPECT_EQ(read(ToolFormat::kQwenXml, fmt::format("a\n\n\n{}", kCalls[2].second)).content,
            "a\n#0#");
}

TEST(ToolParser, CallsHaveIdsOfTheirOwn) {
  const auto parser = make_tool_parser(ToolFormat::kGemma, {}, false);
  ToolOutput output;
  for (int i = 0; i < 2; ++i) {
    parser->push_marker("<|tool_call>", output);
    parser->push_text("call:f{}", output);
  }
  ASSERT_EQ(output.calls.size(), 2u);
  EXPECT_EQ(output.calls[0].id.size(), 32u);
  EXPECT_NE(output.calls[0].id, output.calls[1].id);
  EXPECT_FALSE(parser->ended());
}

TEST(ToolParser, HoldsAndNestsNoMoreThanItsBounds) {
  const std::string much(ToolParser::kMostHeldBytes + 10, '1');
  const std::pair<ToolFormat, std::string> kHeld[] = {
      {ToolFormat::kGemma, "<|tool_call>call:"},
      {ToolFormat::kQwenJson, "<tool_call>{\"arguments\":{\"a\":\""},
      {ToolFormat::kQwenXml, "<tool_call><function=f><parameter=count>"}};
  for (const auto& [format, begin] : kHeld) {
    const auto parser = make_tool_parser(format, tools(), false);
    const Read some = read_in_pieces(*parser, format, begin + much, [] { return 1 << 16; });
    EXPECT_TRUE(some.content.ends_with(much));
  }
  for (const std::size_t depth : {ToolParser::kMostNesting, ToolParser::kMostNesting + 1}) {
    const std::string open(depth - 1, '[');
    const std::string close(depth - 1, ']');
    const bool fits = depth == ToolParser::kMostNesting;
    EXPECT_EQ(json::accept(read(ToolFormat::kGemma, "<|tool_call>call:f{a:" + open + close + "}")
                               .calls.at(0)
                               .second),
              fits);
    EXPECT_EQ(json::accept(read(ToolFormat::kQwenJson,
                                R"(<tool_call>{"name":"f","arguments":{"a":)" + open + close + "}}")
                               .calls.at(0)
                               .second),
              fits);
  }
}

TEST(JsonChecker, AgreesWithAParser) {
  test::expect_property("an object is whole if a parser takes it", [] {
    auto choices = test::Choices::any(40);
    constexpr std::string_view kParts[] = {
        "{",       "}",    "[",    "]", "\"a\"",          ":",  ",",  "1",
        "-0.5e+7", "true", "null", " ", "\"\\u00e9\\n\"", "01", "\"", "\\",
        "fals"};
    std::string text = "{";
    while (!choices.is_empty()) text += kParts[choices.below(std::size(kParts))];
    JsonChecker checker;
    for (std::size_t at = 0; at < text.size(); ++at) {
      const bool takes = checker.push(text[at], 64);
      RC_ASSERT((takes && checker.is_whole()) == json::accept(text.substr(0, at + 1)));
      if (!takes) return;
    }
  });
}

json any_json(test::Choices& choices, int depth) {
  constexpr const char* kTexts[] = {
      "",  "a",   "\n",     "\"",       "\\",  "</parameter", "<tool_call>", "\u00e9",
      "{", ":,}", "\t\x01", "call:f{}", " b ", "<|",          "null"};
  switch (choices.below(depth > 3 ? 5 : 7)) {
    case 0: {
      std::string text;
      for (std::uint32_t n = choices.below(4); n > 0; --n)
        text += kTexts[choices.below(std::size(kTexts))];
      return text;
    }
    case 1:
      return static_cast<int>(choices.below(5000)) - 2500;
    case 2:
      return choices.below(1000) / 7.0;
    case 3:
      return choices.below(2) == 1;
    case 4:
      return nullptr;
    case 5: {
      json list = json::array();
      for (std::uint32_t n = choices.below(4); n > 0; --n)
        list.push_back(any_json(choices, depth + 1));
      return list;
    }
    default: {
      json object = json::object();
      for (std::uint32_t n = choices.below(4); n > 0; --n) {
        object[fmt::format("key_{}", choices.below(9))] = any_json(choices, depth + 1);
      }
      return object;
    }
  }
}

std::string in_gemmas_words(const json& value) {
  constexpr std::string_view kQuote = "<|\"|>";
  if (value.is_string()) return fmt::format("{}{}{}", kQuote, value.get<std::string>(), kQuote);
  if (!value.is_structured()) return value.dump();
  std::string text;
  for (const auto& [key, item] : value.items()) {
    if (!text.empty()) text += ',';
    if (value.is_object()) text += key + ':';
    text += in_gemmas_words(item);
  }
  return value.is_object() ? '{' + text + '}' : '[' + text + ']';
}

// A call of a tool "f" as the format's templates write it.
std::string written(ToolFormat format, const json& arguments) {
  switch (format) {
    case ToolFormat::kGemma:
      return "<|tool_call>call:f" + in_gemmas_words(arguments) + "<tool_call|>";
    case ToolFormat::kQwenJson:
      return "<tool_call>\n{\"name\": \"f\", \"arguments\": " + arguments.dump() +
             "}\n</tool_call>";
    default:
      break;
  }
  std::string text = "<tool_call>\n<function=f>\n";
  for (const auto& [key, item] : arguments.items()) {
    text += fmt::format("<parameter={}>\n{}\n</parameter>\n", key,
                        item.is_string() ? item.get<std::string>() : item.dump());
  }
  return text + "</function>\n</tool_call>";
}

std::vector<std::string> tools_of(const json& arguments) {
  json properties = json::object();
  for (const auto& [key, item] : arguments.items()) {
    properties[key] = {{"type", item.is_string() ? "string" : "object"}};
  }
  const json function = {{"name", "f"}, {"parameters", {{"properties", properties}}}};
  return {json({{"type", "function"}, {"function", function}}).dump()};
}

TEST(ToolParser, ArgumentsComeBackAsTheyWereHoweverTheyAreCut) {
  for (const ToolFormat format : kFormats) {
    test::expect_property(fmt::format("format {}", static_cast<int>(format)), [format] {
      auto choices = test::Choices::any(60);
      json arguments = json::object();
      for (std::uint32_t n = choices.below(4); n > 0; --n) {
        arguments[fmt::format("key_{}", choices.below(9))] = any_json(choices, 0);
      }
      const std::string text = "Before" + written(format, arguments) + "\nand behind";
      const auto parser = make_tool_parser(format, tools_of(arguments), false);
      const Read some = read_in_pieces(*parser, format, text, [&] { return choices.below(9) + 1; });
      RC_ASSERT(some.content == "Before#0#\nand behind");
      RC_ASSERT(some.calls.size() == 1u);
      RC_ASSERT(some.calls[0].first == "f");
      RC_ASSERT(json::parse(some.calls[0].second, nullptr, false) == arguments);
    });
  }
}

TEST(ToolParser, AnyTextComesOutTheSameHoweverItIsCut) {
  constexpr std::string_view kParts[] = {"<tool_call>",
                                         "</tool_call>",
                                         "<|tool_call>",
                                         "<tool_call|>",
                                         "<|\"|>",
                                         "\n",
                                         " ",
                                         "{",
                                         "}",
                                         "[",
                                         "]",
                                         ",",
                                         ":",
                                         "call:f",
                                         "a",
                                         "1",
                                         "\"name\"",
                                         "\"f\"",
                                         "\"arguments\"",
                                         "<function=f>",
                                         "<parameter=text>",
                                         "<parameter=any>",
                                         "</parameter>",
                                         "</function>",
                                         "<",
                                         "true"};
  for (const ToolFormat format : kFormats) {
    test::expect_property(fmt::format("format {}", static_cast<int>(format)), [&] {
      auto choices = test::Choices::any(60);
      std::string text;
      const std::uint32_t count = choices.below(40);
      for (std::uint32_t i = 0; i < count; ++i) text += kParts[choices.below(std::size(kParts))];
      const auto whole = make_tool_parser(format, tools(), false);
      const auto cut = make_tool_parser(format, tools(), false);
      const Read expected = read_in_pieces(*whole, format, text, [&] { return text.size(); });
      const Read got = read_in_pieces(*cut, format, text, [&] { return choices.below(7) + 1; });
      RC_ASSERT(got.content == expected.content);
      RC_ASSERT(got.calls == expected.calls);
    });
  }
}

}  // namespace
}  // namespace kakeya::service
