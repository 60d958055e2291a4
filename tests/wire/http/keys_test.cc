// The keys' file, hostile lines included, and quotas, on a clock of their own.
#include "wire/http/keys.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace kakeya::wire {
namespace {

// SHA-256 of "abc", of the standard's examples.
constexpr const char* kHash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

Result<Keys> parse(const std::string& text) {
  return Keys::parse(text, "keys");
}

TEST(ServerKeys, FindsAKeyByItsHashAlone) {
  const NewKey other = make_key("other").value();
  const Keys keys = parse(fmt::format("# people\n\r\nann:{}:30\r\n{}", kHash, other.line)).value();
  ASSERT_EQ(keys.size(), 2u);
  EXPECT_EQ(keys.name(0), "ann");
  EXPECT_EQ(keys.find("abc"), 0u);
  EXPECT_EQ(keys.find(other.key), 1u);
  for (const std::string& wrong :
       {std::string(), std::string("abd"), std::string("abc\n"), std::string(kHash),
        other.key.substr(1), std::string("abc\0", 4)}) {
    EXPECT_FALSE(keys.find(wrong)) << wrong;
  }
}

TEST(ServerKeys, NewKeysAreRandom) {
  const NewKey one = make_key("a").value();
  EXPECT_NE(one.key, make_key("a").value().key);
  EXPECT_EQ(one.key.size(), 7 + 64u);
  EXPECT_EQ(one.line.find(one.key.substr(7)), std::string::npos);
  for (const char* name : {"", "a:b", "a b", "a\nb", "\xC3\xA4"}) EXPECT_FALSE(make_key(name));
}

TEST(ServerKeys, RefusesHostileLines) {
  const std::string good = fmt::format("ann:{}", kHash);
  const std::string long_name(kMostKeyNameBytes + 1, 'a');
  const std::string lines[] = {"",
                               "ann",
                               ":",
                               "ann:",
                               fmt::format(":{}", kHash),
                               fmt::format("{}:{}", long_name, kHash),
                               fmt::format("a\"b:{}", kHash),
                               fmt::format("a{}b:{}", '\0', kHash),
                               fmt::format(" ann:{}", kHash),
                               good + "0",
                               good.substr(0, good.size() - 1),
                               fmt::format("ann:{}", std::string(64, 'g')),
                               fmt::format("ann:+{}", std::string(63, '0')),
                               good + ":",
                               good + ":0",
                               good + ":-1",
                               good + ":1000001",
                               good + ":99999999999999999999999",
                               good + ":1:1",
                               good + ":priority=1",
                               good + ":priority=",
                               good + ":priority=x",
                               good + ":priority=-3000000000",
                               good + ":priority=-1:60",
                               good + ":60:priority=-1:",
                               good + "::priority=-1",
                               good + ":60:60:priority=-1",
                               good + ": 1",
                               good + "\n" + good,
                               good + "\nbob" + good.substr(3),
                               std::string(1 << 16, ':'),
                               std::string(1 << 16, '\n')};
  for (const std::string& line : lines) {
    const auto keys = parse(line);
    ASSERT_FALSE(keys) << line.substr(0, 100);
    EXPECT_EQ(keys.error().code(), StatusCode::kInvalidArgument);
    // One line, and nothing of what may be a key by mistake.
    EXPECT_EQ(keys.error().message().find('\n'), std::string::npos);
    EXPECT_EQ(keys.error().message().find(kHash), std::string::npos);
  }
  EXPECT_NE(parse(good + "\nx").error().message().find("keys, line 2"), std::string::npos);
  std::string many;
  for (std::size_t i = 0; i <= kMostKeys; ++i) many += fmt::format("n{}:{:064x}\n", i, i);
  EXPECT_FALSE(parse(many));
}

TEST(ServerKeys, EveryBitOfEveryByteIsSafe) {
  // Each change of a good file gives keys or an error; none of them the key of before, but where
  // the hash stays: in the name or the quota.
  const std::string good = fmt::format("ann:{}:30\n", kHash);
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string text = good;
      text[at] = static_cast<char>(text[at] ^ (1 << bit));
      const auto keys = parse(text);
      const bool in_hash = at >= 4 && at < 4 + 64;
      const bool same = std::tolower(text[at]) == good[at];
      if (!keys || !in_hash || same) continue;
      EXPECT_FALSE(keys->find("abc")) << text;
    }
  }
}

TEST(ServerKeys, SayHowUrgentRequestsMayBe) {
  const auto most_urgent = [](const std::string& terms) {
    return parse("ann:" + std::string(kHash) + terms).value().most_urgent(0);
  };
  EXPECT_EQ(most_urgent(""), 0);
  EXPECT_EQ(most_urgent(":60"), 0);
  EXPECT_EQ(most_urgent(":priority=-10"), -10);
  EXPECT_EQ(most_urgent(":60:priority=-2147483647"), -2147483647);
  EXPECT_EQ(most_urgent(":priority=0"), 0);
  Keys keys = parse(fmt::format("ann:{}:4:priority=-1", kHash)).value();
  EXPECT_EQ(keys.seconds_until_allowed(0, {}), 0);
  EXPECT_EQ(keys.seconds_until_allowed(0, {}), 15);
}

TEST(ServerKeys, AQuotaIsOfAMinute) {
  Keys keys = parse(fmt::format("ann:{}:8\nbob:{}", kHash, std::string(64, '0'))).value();
  const Keys::Time begin{};
  const auto at = [&](double seconds) {
    return begin + std::chrono::milliseconds(static_cast<int>(seconds * 1000));
  };
  EXPECT_EQ(keys.seconds_until_allowed(0, at(0)), 0);
  EXPECT_EQ(keys.seconds_until_allowed(0, at(0)), 0);
  EXPECT_EQ(keys.seconds_until_allowed(0, at(0)), 8);  // 7.5
  EXPECT_EQ(keys.seconds_until_allowed(0, at(5)), 3);
  EXPECT_EQ(keys.seconds_until_allowed(0, at(7.5)), 0);
  // No more than two are saved up.
  for (int i = 0; i < 2; ++i) EXPECT_EQ(keys.seconds_until_allowed(0, at(1000)), 0);
  EXPECT_EQ(keys.seconds_until_allowed(0, at(1000)), 8);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(keys.seconds_until_allowed(1, at(0)), 0);
}

TEST(ServerKeys, NoMinuteHasMuchMoreThanItsQuota) {
  Keys keys = parse(fmt::format("ann:{}:60", kHash)).value();
  int allowed = 0;
  for (int tenth = 0; tenth < 300; ++tenth) {
    const Keys::Time now = Keys::Time{} + std::chrono::milliseconds(100 * tenth);
    allowed += keys.seconds_until_allowed(0, now) == 0 ? 1 : 0;
  }
  EXPECT_LE(allowed, 45);  // in half a minute
  EXPECT_GE(allowed, 30);
}

TEST(ServerKeys, ARequestThatIsWorthSeveralTakesTheirPlaces) {
  Keys keys = parse(fmt::format("ann:{}:60", kHash)).value();
  const Keys::Time now{};
  EXPECT_EQ(keys.seconds_until_allowed(0, now), 0);
  keys.charge("ann", 255);
  EXPECT_EQ(keys.seconds_until_allowed(0, now), 242);  // 14 - 255 are left, one a second comes
  keys.charge("nobody", 5);
}

TEST(ServerKeys, WhatIsLeftOfAQuotaGoesOnWhenTheFileIsReadAnew) {
  const Keys::Time now{};
  Keys keys = parse(fmt::format("ann:{}:1", kHash)).value();
  EXPECT_EQ(keys.seconds_until_allowed(0, now), 0);
  Keys same = parse(fmt::format("bob:{}:1\nann:{}:1", std::string(64, '0'), kHash)).value();
  same.take_quotas(keys);
  EXPECT_EQ(same.seconds_until_allowed(0, now), 0);
  EXPECT_EQ(same.seconds_until_allowed(1, now), 60);
  Keys raised = parse(fmt::format("ann:{}:60", kHash)).value();
  raised.take_quotas(keys);
  EXPECT_EQ(raised.seconds_until_allowed(0, now), 1) << "nothing was left";
}

}  // namespace
}  // namespace kakeya::wire
