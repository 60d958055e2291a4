// Chat templates against jinja2 (tools/make_template_goldens.py), and against hostile templates.
#include "text/chat_template.h"

#include <gmock/gmock.h>

#include "text/text_test_util.h"

namespace kakeya {
namespace {

using ::nlohmann::ordered_json;
using ::testing::HasSubstr;

ordered_json read_ordered_json(const std::string& relative) {
  return ordered_json::parse(read_text_file(data_path(relative)));
}

Result<std::string> render(const std::string& source,
                           const ordered_json& context = ordered_json::object(),
                           const RenderOptions& options = {}) {
  auto parsed = ChatTemplate::parse(source);
  if (!parsed) return Unexpected(parsed.error());
  return parsed->render(context, options);
}

// The outcome that the fixture holds: {"text"}, {"raised": message} or {"fails"}.
void expect_outcome(const Result<std::string>& actual,
                    const ordered_json& expected,
                    const std::string& what) {
  if (expected.contains("text")) {
    ASSERT_TRUE(actual) << what << "\n" << actual.error().message();
    EXPECT_EQ(*actual, expected["text"].get<std::string>()) << what;
    return;
  }
  ASSERT_FALSE(actual) << what << "\n" << *actual;
  EXPECT_THAT(actual.error().message(), HasSubstr("[chat template] line ")) << what;
  if (expected.contains("raised")) {
    EXPECT_EQ(actual.error().code(), StatusCode::kInvalidArgument) << what;
    EXPECT_THAT(actual.error().message(), HasSubstr(expected["raised"].get<std::string>()));
  }
}

RenderOptions fixed_time(const ordered_json& fixture) {
  RenderOptions options;
  const auto time = fixture["strftime_now"].get<std::string>();
  options.format_time = [time](std::string_view) { return time; };
  return options;
}

TEST(ChatTemplateGolden, RendersConversationsLikeJinja2) {
  const auto fixture = read_ordered_json("chat_templates/cases.json");
  const RenderOptions options = fixed_time(fixture);
  EXPECT_EQ(fixture["templates"].size(), 8u);
  EXPECT_GE(fixture["cases"].size(), 40u);
  for (const auto& [name, path] : fixture["templates"].items()) {
    const auto parsed = ChatTemplate::parse(read_text_file(data_path(path.get<std::string>())));
    ASSERT_TRUE(parsed) << name << ": " << parsed.error().message();
    for (const auto& item : fixture["cases"]) {
      expect_outcome(parsed->render(item["context"], options), item["rendered"][name],
                     name + ": " + item["name"].get<std::string>());
    }
  }
}

TEST(ChatTemplateGolden, SingleFeaturesBehaveLikeJinja2) {
  const auto fixture = read_ordered_json("chat_templates/cases.json");
  const RenderOptions options = fixed_time(fixture);
  for (const auto& item : fixture["snippets"]) {
    const auto source = item["source"].get<std::string>();
    expect_outcome(render(source, item["context"], options), item["rendered"], source);
  }
}

TEST(ChatTemplateGolden, PublishedGemma4Cases) {
  const auto fixture = read_ordered_json("tokenizers/gemma4/chat_template_cases.json");
  EXPECT_EQ(fixture["cases"].size(), 22u);
  for (const auto& [name, info] : fixture["templates"].items()) {
    const auto parsed =
        ChatTemplate::parse(read_text_file(data_path(info["file"].get<std::string>())));
    ASSERT_TRUE(parsed) << name << ": " << parsed.error().message();
    for (const auto& item : fixture["cases"]) {
      ordered_json context = {{"messages", item["messages"]},
                              {"bos_token", "<bos>"},
                              {"eos_token", "<eos>"},
                              {"add_generation_prompt", true}};
      context.update(item["kwargs"]);
      const auto text = parsed->render(context);
      ASSERT_TRUE(text) << name << ": " << item["name"] << ": " << text.error().message();
      EXPECT_EQ(*text, item["rendered"][name].get<std::string>()) << name << ": " << item["name"];
    }
  }
}

TEST(ChatTemplateGolden, PublishedGemma4Conversation) {
  const auto golden = read_ordered_json("tokenizers/gemma4/chat_template_golden.json");
  const auto text = render(
      read_text_file(data_path("tokenizers/gemma4/chat_template.jinja")),
      {{"messages", golden["messages"]}, {"bos_token", "<bos>"}, {"add_generation_prompt", true}});
  ASSERT_TRUE(text);
  EXPECT_EQ(*text, golden["rendered_text"].get<std::string>());
}

TEST(ChatTemplate, GenerationTagChangesNothing) {
  const auto text = render("a{% generation %}\nb{% endgeneration %}\nc");
  ASSERT_TRUE(text) << text.error().message();
  EXPECT_EQ(*text, "abc");
}

TEST(ChatTemplate, TimeDefaultsToNow) {
  const auto text = render("{{ strftime_now('%Y') | int > 2020 }}");
  ASSERT_TRUE(text);
  EXPECT_EQ(*text, "True");
}

// Expected texts are jinja2 3.1's.
TEST(ChatTemplate, FiltersTestsAndMethodsAreThoseOfJinja2) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"({{ [3, 1, 2] | sort }})", R"([1, 2, 3])"},
      {R"({{ [3, 1, 2] | sort(reverse=true) | join(',') }})", R"(3,2,1)"},
      {R"({{ ['b', 'A', 'a', 'B'] | sort }})", R"(['A', 'a', 'b', 'B'])"},
      {R"({{ ['b', 'A', 'a', 'B'] | sort(case_sensitive=true) }})", R"(['A', 'B', 'a', 'b'])"},
      {R"({{ [{'n': 2, 'x': 'b'}, {'n': 1, 'x': 'a'}] | sort(attribute='n') | map(attribute='x') | join }})",
       R"(ab)"},
      {R"({{ ['b', 'A', 'a', 'B'] | unique | list }})", R"(['b', 'A'])"},
      {R"({{ [1, 2.5, 3] | sum }})", R"(6.5)"},
      {R"({{ [{'n': 2}, {'n': 5}] | sum(attribute='n', start=10) }})", R"(17)"},
      {R"({{ [3, 1, 2] | min }} {{ [3, 1, 2] | max }} {{ ['b', 'C'] | max }})", R"(1 3 C)"},
      {R"({{ [] | min }}|)", R"(|)"},
      {R"({{ 'abc' | reverse }} {{ [1, 2] | reverse | list }})", R"(cba [2, 1])"},
      {R"({{ -3 | abs }} {{ -2.5 | abs }})", R"(3 2.5)"},
      {R"({{ 2.567 | round(2) }} {{ 2.5 | round }} {{ 3.5 | round }} {{ 2 | round }} {{ 2.1 | round(0, 'ceil') }} {{ 2.9 | round(method='floor') }})",
       R"(2.57 2.0 4.0 2 3.0 2.0)"},
      {R"({{ '2.5' | float }} {{ 'x' | float }} {{ 'x' | float(1.5) }} {{ 3 | float }})",
       R"(2.5 0.0 1.5 3.0)"},
      {R"({{ 'hello world' | capitalize }} {{ 'HELLO' | capitalize }})", R"(Hello world Hello)"},
      {R"({% for k, g in [{'t': 'b', 'v': 1}, {'t': 'a', 'v': 2}, {'t': 'b', 'v': 3}] | groupby('t') %}{{ k }}:{{ g | map(attribute='v') | join(',') }};{% endfor %})",
       R"(a:2;b:1,3;)"},
      {R"({{ 'a-b-c'.rsplit('-', 1) }} {{ 'a-b'.rsplit('-') }} {{ 'a\nb\r\nc'.splitlines() }} {{ 'banana'.count('an') }})",
       R"(['a-b', 'c'] ['a', 'b'] ['a', 'b', 'c'] 2)"},
      {R"({{ 3 is ge 2 }} {{ 3 is gt 3 }} {{ 2 is le 2 }} {{ 2 is lt 1 }} {{ 2 is lessthan 3 }} {{ none is sameas none }} {{ 1 is sameas true }})",
       R"(True False True False True True False)"},
      {R"({{ 'abc' is lower }} {{ 'ABC' is upper }} {{ 'Abc' is lower }} {{ '12' is upper }})",
       R"(True True False False)"},
      {R"({{ [1, 2, 3] | select('ge', 2) | list }})", R"([2, 3])"},
      {R"x({{ "it's o'neil-smith (and co)" | title }})x", R"x(It's O'neil-Smith (And Co))x"},
      {R"({% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }})", R"(211)"},
      {R"({% with %}{% set a = 1 %}{% endwith %}{{ a is defined }})", R"(False)"},
      {R"({% for x in [1, 2] %}{% with y = x %}{{ y }}{% break %}{% endwith %}{% endfor %})",
       R"(1)"},
      {R"({% filter upper | replace('B', 'x') %}a{{ 'b' }}{% endfilter %})", R"(Ax)"},
      {R"({% macro m(a) %}<{{ a }}:{{ caller() }}>{% endmacro %}{% set c = 3 %}{% call m(1) %}in {{ c }}{% endcall %})",
       R"(<1:in 3>)"},
      {R"({% macro m() %}{{ caller(1, y=2) }}{% endmacro %}{% call(x, y, z=5) m() %}{{ x }}{{ y }}{{ z }}{% endcall %})",
       R"(125)"},
      {R"({{ dict(a=1, b='c') }} {{ dict() | length }})", R"({'a': 1, 'b': 'c'} 0)"},
      {R"({% for x in [1] %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %})", R"(10)"},
  };
  for (const auto& [source, expected] : kCases) {
    const auto text = render(source);
    ASSERT_TRUE(text) << source << "\n" << text.error().message();
    EXPECT_EQ(*text, expected) << source;
  }
}

void expect_error(const std::string& source, StatusCode code, const std::string& message) {
  const auto text = render(source);
  ASSERT_FALSE(text) << source << "\n" << text->substr(0, 200);
  EXPECT_EQ(text.error().code(), code) << source << "\n" << text.error().message();
  EXPECT_THAT(text.error().message(), HasSubstr(message)) << source;
  EXPECT_EQ(text.error().message().find('\n'), std::string::npos);
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  const StatusCode bad = StatusCode::kInvalidArgument;
  expect_error("a\nb\n{{ x.y }}", bad, "line 3: 'x' is undefined");
  expect_error("a\n{{ 1 +\n}}", bad, "line 3: expected an expression");
  expect_error("\n\n{% if x %}\n", bad, "line 3: a block is not closed: 'endif' is missing");
  expect_error("{# c\n c #}\n{{ raise_exception('no') }}", bad, "line 3: no");
  expect_error("{{ raise_exception('two\\nlines') }}", bad, "line 1: two lines");
  expect_error("{% macro f() %}\n\n{{ 1 // 0 }}{% endmacro %}\n{{ f() }}", bad,
               "line 3: division by zero");
  expect_error("\n{{ 'a' | frobnicate }}", StatusCode::kUnimplemented, "line 2: no filter named");
  expect_error("\n{{ 'a' is weird }}", StatusCode::kUnimplemented, "line 2: no test named");
  expect_error("\n{% include 'x' %}", StatusCode::kUnimplemented,
               "line 2: the statement 'include'");
  expect_error("{% nonsense %}", bad, "line 1: unexpected tag 'nonsense'");
  expect_error("\n{% for x in [1] recursive %}{% endfor %}", bad,
               "line 2: expected the end of the tag");
  expect_error("{% for x in [1] %}{{ loop([1]) }}{% endfor %}", bad, "is not callable");
  expect_error("{% for x in [1] %}{{ loop.cycle(1) }}{% endfor %}", bad,
               "has no attribute 'cycle'");
  expect_error("{{ [2, 'a'] | sort }}", bad, "line 1");
  expect_error("{{ [1] | groupby }}", bad, "needs an attribute");
  expect_error("{{ 2 ** 2 }}", bad, "expected");
  expect_error("{{ {}.b.c }}", bad, "'dict object' has no attribute 'b'");
  expect_error("{{ 9223372036854775807 + 1 }}", bad, "exceeds 64 bits");
  expect_error("{{ 99999999999999999999 }}", bad, "out of range");
}

TEST(ChatTemplate, ErrorsQuoteNoControlCharactersAndNoMegabytes) {
  const StatusCode bad = StatusCode::kInvalidArgument;
  expect_error("{{ raise_exception('R\u00f4les \u6f22\x1b[2J\u009b\u202ea\x7f') }}", bad,
               R"(Rôles 漢\x1b[2J\xc2\x9b\xe2\x80\xaea\x7f)");
  const auto raised = render("{{ raise_exception('\x07' * 1000000) }}");
  ASSERT_FALSE(raised);
  EXPECT_LT(raised.error().message().size(), 600U);
  expect_error("{{ {}['\x1b[2J'].b }}", bad, R"('\x1b[2J')");
  expect_error("{{ 'a' | \x1b }}", bad, R"(\x1b)");
}

std::string repeated(const std::string& text, std::size_t count) {
  std::string result;
  for (std::size_t i = 0; i < count; ++i) result += text;
  return result;
}

TEST(ChatTemplateHostility, EndlessRecursionGivesOneClearLine) {
  const StatusCode limit = StatusCode::kResourceExhausted;
  expect_error("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", limit,
               "'f' is called more than 100 calls deep");
  expect_error(
      "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}",
      limit, "calls deep");
  expect_error("{% macro f(a=f()) %}{% endmacro %}{{ f() }}", limit, "calls deep");
  const std::string deep = "{{ " + repeated("(", 40) + "f()" + repeated(")", 40) + " }}";
  expect_error("{% macro f() %}" + deep + "{% endmacro %}{{ f() }}", limit, "calls deep");
  expect_error("{% macro f() %}{{ " + repeated("[", 40) + "f()" + repeated("]", 40) +
                   " }}{% endmacro %}{{ f() }}",
               limit, "levels deep");
  for (const auto& [begin, end] :
       std::map<std::string, std::string>{{"{% if 1 %}", "{% endif %}"},
                                          {"{% for x in [1] %}", "{% endfor %}"},
                                          {"{% set x %}", "{% endset %}"},
                                          {"{% generation %}", "{% endgeneration %}"}}) {
    expect_error("{% macro f() %}" + repeated(begin, 150) + "{{ f() }}" + repeated(end, 150) +
                     "{% endmacro %}{{ f() }}",
                 limit, "levels deep");
  }
}

TEST(ChatTemplateHostility, OutputAndValuesAreBounded) {
  const StatusCode limit = StatusCode::kResourceExhausted;
  expect_error("{{ 'a' * 1000000000 }}", limit, "bytes of values");
  expect_error("{{ [1] * 1000000000000000000 }}", limit, "bytes of values");
  expect_error("{{ 'ab' * 9223372036854775807 }}", limit, "bytes of values");
  // Doubling a text, by concatenation, by replacement and by joining.
  const std::string doubling = "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(100) %}";
  for (const std::string change :
       {"ns.s + ns.s", "ns.s.replace('a', 'aa')", "ns.s | replace('a', 'aa')",
        "[ns.s, ns.s] | join", "ns.s ~ ns.s", "ns.s.join([ns.s, ns.s])", "ns.s.replace('', 'a')"}) {
    expect_error(doubling + "{% set ns.s = " + change + " %}{% endfor %}{{ ns.s }}", limit, "");
  }
  // A small list of shared parts that is enormous when printed.
  for (const std::string use : {"ns.s", "ns.s | tojson", "ns.s == ns.s", "ns.s | string"}) {
    expect_error(
        "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}"
        "{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ " +
            use + " }}",
        limit, "a value has more than");
  }
  expect_error(
      "{% set ns = namespace(s=[1]) %}{% for i in range(1000) %}"
      "{% set ns.s = [ns.s] %}{% endfor %}",
      limit, "levels deep");
  // 2 ** 60 characters of output from nested macros.
  std::string macros = "{% macro m0() %}aaaaaaaa{% endmacro %}";
  for (int i = 1; i < 60; ++i) {
    macros += fmt::format("{{% macro m{}() %}}{{{{ m{}() }}}}{{{{ m{}() }}}}{{% endmacro %}}", i,
                          i - 1, i - 1);
  }
  expect_error(macros + "{{ m59() }}", limit, "the template uses more than");
  // One text, printed until it is a little more than 128 MiB.
  expect_error("{% set s = 'a' * 1048576 %}{% for i in range(130) %}{{ s }}{% endfor %}", limit,
               "bytes of output");
}

TEST(ChatTemplateHostility, LoopsAreBounded) {
  const StatusCode limit = StatusCode::kResourceExhausted;
  expect_error("{% for i in range(1000000000) %}{% endfor %}", limit, "range gives more than");
  expect_error("{% for i in range(0, 9223372036854775807, 1) %}{% endfor %}", limit, "range");
  std::string nested = "x";
  for (int i = 0; i < 6; ++i) nested = "{% for i in range(100000) %}" + nested + "{% endfor %}";
  expect_error(nested, limit, "the template uses more than");
  // Searches that compare everything with everything.
  expect_error("{% set a = 'a' * 10000000 %}{{ (a[:5000000] ~ 'b') in a }}", limit, "steps");
  expect_error("{% set a = 'a' * 10000000 %}{{ a.find(a[:5000000] ~ 'b') }}", limit, "steps");
}

TEST(ChatTemplateHostility, NestingOfTheSourceIsBounded) {
  const StatusCode limit = StatusCode::kResourceExhausted;
  const std::string deep = "levels deep";
  expect_error("{{ " + repeated("(", 100000) + "1" + repeated(")", 100000) + " }}", limit, deep);
  expect_error("{{ " + repeated("[", 100000) + repeated("]", 100000) + " }}", limit, deep);
  expect_error("{{ " + repeated("not ", 100000) + "1 }}", limit, deep);
  expect_error("{{ " + repeated("-", 100000) + "1 }}", limit, deep);
  expect_error("{{ 1" + repeated(" + 1", 100000) + " }}", limit, deep);
  expect_error("{{ x" + repeated(".a", 100000) + " }}", limit, deep);
  expect_error("{{ x" + repeated("[0]", 100000) + " }}", limit, deep);
  expect_error("{{ x" + repeated(" | upper", 100000) + " }}", limit, deep);
  expect_error("{{ 1" + repeated(" if 1 else 1", 100000) + " }}", limit, deep);
  expect_error(repeated("{% if 1 %}", 100000), limit, deep);
  expect_error(repeated("{% for x in y %}", 100000), limit, deep);
  expect_error(repeated("{% set x %}", 100000), limit, deep);
  const auto many_branches =
      render("{% if 0 %}" + repeated("{% elif 0 %}", 100000) + "{% else %}x{% endif %}");
  ASSERT_TRUE(many_branches) << many_branches.error().message();
  EXPECT_EQ(*many_branches, "x");
}

TEST(ChatTemplateHostility, ContextsAreBounded) {
  ordered_json deep = "x";
  for (int i = 0; i < 300; ++i) deep = ordered_json::array({deep});
  const auto text = render("{{ x }}", {{"x", deep}});
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(render("{{ x }}", ordered_json::array()));
}

// Generators of schemas write the largest number of an unsigned type.
TEST(ChatTemplate, LargeIntegersStayWhatTheyAre) {
  EXPECT_EQ(render("{{ x }}", {{"x", 9223372036854775807}}).value(), "9223372036854775807");
  EXPECT_EQ(render("{{ x }} {{ x | tojson }}", {{"x", 18446744073709551615ull}}).value(),
            "18446744073709551615 18446744073709551615");
  EXPECT_EQ(render("{{ x is integer }} {{ x > 1 }}", {{"x", 1ull << 63}}).value(), "True True");
}

TEST(ChatTemplateHostility, NamespacesThatHoldEachOtherDoNotLeakOrLoop) {
  const auto text = render(
      "{% set a = namespace() %}{% set b = namespace(o=a) %}{% set a.o = b %}{% set a.s = a %}"
      "{{ a.o.o.s is defined }}{{ a == a }}{{ a == b }}{{ a | string | length > 0 }}");
  ASSERT_TRUE(text) << text.error().message();
  EXPECT_EQ(*text, "TrueTrueFalseTrue");
}

TEST(ChatTemplateHostility, MacrosThatOutliveTheirScopeAreRefused) {
  expect_error(
      "{% set ns = namespace() %}{% for i in [1] %}{% macro m() %}{{ i }}{% endmacro %}"
      "{% set ns.m = m %}{% endfor %}{{ ns.m() }}",
      StatusCode::kInvalidArgument, "out of its scope");
}

TEST(ChatTemplate, LongConversationsStayFarFromTheLimits) {
  ordered_json messages = ordered_json::array();
  for (int i = 0; i < 400; ++i) {
    messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"},
                        {"content", repeated("<|channel>lorem ipsum<channel|> ", 100)}});
  }
  RenderOptions options;
  options.limits.max_steps /= 10;
  for (const std::string name :
       {"chat_templates/google-gemma-4-31B-it.jinja", "chat_templates/Qwen3.5-4B.jinja",
        "chat_templates/openai-gpt-oss-120b.jinja"}) {
    const auto text = render(read_text_file(data_path(name)), {{"messages", messages}}, options);
    // The last one refuses channel tags in the text, which takes the same scan.
    if (!text) {
      EXPECT_THAT(text.error().message(), HasSubstr("You have passed a message"));
    }
  }
}

}  // namespace
}  // namespace kakeya
