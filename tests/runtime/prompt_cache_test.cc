// The prompt cache: sessions that start from what others have run give the same tokens as sessions
// that run everything, and the cache never takes memory from them.
#include "runtime/prompt_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "kakeya/engine.h"
#include "model/test_model.h"
#include "runtime/demo_sessions.h"
#include "runtime/engine_impl.h"
#include "runtime/session_modes.h"
#include "thorough.h"

namespace kakeya::test {
namespace {

EngineOptions caching_options(const std::string& draft, std::uint64_t cache_bytes) {
  EngineOptions options = restoring_options(draft);
  options.prompt_cache_bytes = cache_bytes;
  return options;
}

constexpr std::uint64_t kPlenty = std::uint64_t{1} << 30;

Ids first(const Ids& ids, std::size_t count) {
  return {ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count)};
}

std::uint64_t cached_bytes(const Engine& engine) {
  return engine.footprint().reserved_bytes(MemoryClass::kPromptCache);
}

// A new session's answer to a prompt: the tokens; what was accepted in each round, which shows what
// the drafter's context held; and how many tokens it did not have to run.
struct Answer {
  Ids ids;
  std::vector<std::int32_t> accepted;
  std::int64_t kept = 0;

  bool operator==(const Answer& other) const {
    return ids == other.ids && accepted == other.accepted;
  }
};

Answer answer_to(Session& session, const Ids& prompt, const GenerateOptions& options) {
  Answer answer;
  const auto kept = session.sync(prompt);
  EXPECT_TRUE(kept.has_value()) << kept.error().message();
  const auto result = session.generate(options);
  EXPECT_TRUE(result.has_value()) << result.error().message();
  if (!kept || !result) return answer;
  answer.kept = std::ssize(prompt) - result->prefill_tokens;
  // More than then where another thread's session has run the same text in between.
  EXPECT_GE(answer.kept, *kept);
  answer.ids = result->ids;
  for (const RoundRecord& round : result->rounds) answer.accepted.push_back(round.accepted);
  return answer;
}

Answer ask(Engine& engine,
           const SessionMode& mode,
           const Ids& prompt,
           const GenerateOptions& options) {
  return answer_to(*create_session(engine, mode), prompt, options);
}

Answer ask(Engine& engine, const Ids& prompt, const GenerateOptions& options = generation(20)) {
  return ask(engine, {"", engine.session_options()}, prompt, options);
}

// How much of a prompt the cache has, without changing what it has.
std::int64_t kept(Engine& engine, const Ids& prompt) {
  return engine.create_session().value()->sync(prompt).value();
}

TEST(PromptCache, ASessionStartsFromWhatOthersHaveRun) {
  const auto plain = open_engine(caching_options("auto", 0));
  const auto engine = open_engine(caching_options("auto", kPlenty));
  const Ids prompt = random_ids(300, 1);
  const auto expect = [&](const Ids& ids, std::int64_t expected) {
    const Answer answer = ask(*engine, ids);
    EXPECT_EQ(answer.kept, expected);
    EXPECT_EQ(answer, ask(*plain, ids));
    return answer;
  };
  const Answer answer = expect(prompt, 0);
  // All but the last token, which is run again for its logits.
  expect(prompt, 299);
  expect(joined({prompt, random_ids(40, 2)}), 300);
  // The second turn of a conversation: the last token of the answer was not run.
  expect(joined({prompt, answer.ids, random_ids(30, 3)}), 319);
  // Another text behind 250 tokens: the rings still have the window before them.
  expect(joined({first(prompt, 250), random_ids(100, 4)}), 250);
  // Behind 120 they have not; but what is common is kept now, for the third of its kind.
  expect(joined({first(prompt, 120), random_ids(200, 5)}), 0);
  expect(joined({first(prompt, 120), random_ids(200, 6)}), 120);
  expect(random_ids(300, 7), 0);
}

TEST(PromptCache, GivesTheSameTokensInEveryMode) {
  for (const char* draft : {"none", "auto", "ngram"}) {
    const auto plain = open_engine(caching_options(draft, 0));
    const auto engine = open_engine(caching_options(draft, kPlenty));
    for (const SessionMode& mode : session_modes_from(1)) {
      const bool all = mode.name == std::string("auto");
      const bool one_drafter = draft == std::string("auto");
      // Without a drafter, and with two, the same code keeps rows: a few modes will do.
      if (!one_drafter && !(thorough() ? mode.few : all)) continue;
      for (const float temperature : all ? std::vector{0.0F, 1.0F} : std::vector{1.0F}) {
        const GenerateOptions options = generation(20, temperature);
        const Ids prompt = random_ids(330, temperature > 0 ? 1 : 2);
        std::int64_t kept = 0;
        const auto expect_same = [&](const Ids& ids, const char* what) {
          const Answer answer = ask(*engine, mode, ids, options);
          EXPECT_EQ(answer, ask(*plain, mode, ids, options))
              << draft << ", " << mode.name << ", " << what << ", " << answer.kept << " kept";
          kept += answer.kept;
          return answer;
        };
        const Answer answer = expect_same(prompt, "first");
        expect_same(prompt, "again");
        expect_same(joined({prompt, answer.ids, random_ids(70, 3)}), "next turn");
        expect_same(joined({first(prompt, 300), random_ids(90, 4)}), "other end");
        expect_same(joined({first(prompt, 100), random_ids(200, 5)}), "second of a beginning");
        const Answer third =
            expect_same(joined({first(prompt, 100), random_ids(200, 6)}), "third of a beginning");
        EXPECT_EQ(third.kept, 100) << draft << ", " << mode.name;
        EXPECT_EQ(kept, 329 + 349 + 300 + 100) << draft << ", " << mode.name;
      }
    }
  }
}

// Texts that are put together from few pieces, so that their beginnings make a tree, by sessions
// that are new, were used before, or are forks; in a cache that has room for some of them.
TEST(PromptCache, RandomTextsGiveTheSameTokens) {
  for (const char* draft : {"none", "auto"}) {
    const auto plain = open_engine(caching_options(draft, 0));
    for (const std::uint64_t limit : {kPlenty, std::uint64_t{2} << 20}) {
      const auto engine = open_engine(caching_options(draft, limit));
      SequenceRng random(limit + 7);
      auto used = engine->create_session().value();
      std::int64_t kept = 0;
      for (int i = 0; i < by_form(12, 20); ++i) {
        Ids prompt;
        for (std::uint64_t piece = 0; piece < 1 + random.below(4); ++piece) {
          const Ids next = random_ids(190, 10 * piece + random.below(2));
          prompt = joined({prompt, first(next, 60 * (1 + random.below(3)) + random.below(2))});
        }
        const GenerateOptions options = generation(1 + static_cast<std::int64_t>(random.below(40)));
        const Answer expected = ask(*plain, prompt, options);
        Answer answer;
        switch (random.below(3)) {
          case 0:
            answer = ask(*engine, prompt, options);
            break;
          case 1:
            answer = answer_to(*used, prompt, options);
            break;
          default:
            answer = answer_to(*used->fork().value(), prompt, options);
        }
        ASSERT_EQ(answer, expected) << draft << ", text " << i << ", " << answer.kept << " kept";
        kept += answer.kept;
        ASSERT_LE(cached_bytes(*engine), limit);
      }
      EXPECT_GT(kept, by_form(400, 1000)) << draft << ", " << limit;
    }
  }
}

// While one session answers, another one runs its text and goes on: the entry of the answer stands
// behind that of the other session, whose rings had gone on further.
TEST(PromptCache, AnEntryGoesOnWhereARingThatReachedFurtherLeavesIt) {
  const auto plain = open_engine(caching_options("auto", 0));
  const auto engine = open_engine(caching_options("auto", kPlenty));
  const auto session = engine->create_session().value();
  const Ids prompt = random_ids(100, 1);
  ASSERT_OK(session->append(prompt));
  Ids text = prompt;
  ASSERT_OK(session->generate(generation(160), [&](const TokenEvent& token) {
    text.push_back(token.id);
    if (text.size() == 240) ask(*engine, joined({text, random_ids(60, 2)}), generation(1));
    return true;
  }));
  ASSERT_EQ(text.size(), 260U);
  const Answer answer = ask(*engine, text);
  EXPECT_EQ(answer.kept, 259);
  EXPECT_EQ(answer, ask(*plain, text));
}

TEST(PromptCache, AppendedTokensAreFoundToo) {
  const auto plain = open_engine(caching_options("auto", 0));
  const auto engine = open_engine(caching_options("auto", kPlenty));
  const Ids prompt = random_ids(100, 1);
  const Answer expected = ask(*plain, joined({prompt, random_ids(30, 2)}));
  ask(*engine, prompt);
  const auto session = engine->create_session().value();
  ASSERT_OK(session->append(prompt));
  EXPECT_EQ(session->cached_tokens(), 0);
  ASSERT_OK(session->prefill());
  EXPECT_EQ(session->cached_tokens(), 99);
  ASSERT_OK(session->append(random_ids(30, 2)));
  const auto result = session->generate(generation(20));
  ASSERT_OK(result);
  EXPECT_EQ(result->ids, expected.ids);
  EXPECT_EQ(session->cached_tokens(), 99);
  ASSERT_OK(session->truncate(70));
  EXPECT_EQ(session->cached_tokens(), 69);
  EXPECT_EQ(session->fork().value()->cached_tokens(), 69);
  EXPECT_EQ(session->sync(random_ids(10, 9)).value(), 0);
  EXPECT_EQ(session->cached_tokens(), 0);
}

TEST(PromptCache, SessionsOfOtherModesDoNotShare) {
  const auto engine = open_engine(caching_options("auto", kPlenty));
  const Ids prompt = random_ids(200, 1);
  std::vector<SessionMode> modes(5, {"", engine->session_options()});
  modes[1].options.kv_full = KvType::kInt8;
  modes[2].options.context = 512;
  modes[3].options.drafting = false;
  modes[4].options.window = 64;
  modes[4].options.evicted_full = Evicted::kDrop;
  for (const SessionMode& mode : modes) {
    EXPECT_EQ(ask(*engine, mode, prompt, generation(5)).kept, 0);
  }
  for (const SessionMode& mode : modes) {
    EXPECT_EQ(ask(*engine, mode, prompt, generation(5)).kept, 199);
  }
  // A session that recomputes everything neither takes nor gives.
  modes[0].comparison.recompute = true;
  EXPECT_EQ(ask(*engine, modes[0], prompt, generation(5)).kept, 0);
}

TEST(PromptCache, ScopesDoNotShare) {
  const auto engine = open_engine(caching_options("auto", kPlenty));
  const Ids prompt = random_ids(200, 1);
  std::vector<SessionMode> scopes(3, {"", engine->session_options()});
  scopes[1].options.cache_scope = "ann";
  scopes[2].options.cache_scope = "bob";
  for (const SessionMode& scope : scopes) {
    EXPECT_EQ(engine->cached_prefix(prompt, scope.options).tokens, 0);
    EXPECT_EQ(ask(*engine, scope, prompt, generation(5)).kept, 0);
  }
  EXPECT_GT(engine->forget_prefix(prompt, 0, scopes[1].options), 0U);
  EXPECT_EQ(ask(*engine, scopes[1], prompt, generation(5)).kept, 0);
  for (const SessionMode& scope : scopes) {
    EXPECT_EQ(ask(*engine, scope, prompt, generation(5)).kept, 199);
  }
  scopes[1].options.cache_scope = std::string(SessionOptions::kMostScopeBytes + 1, 'a');
  EXPECT_FALSE(engine->create_session(scopes[1].options));
}

TEST(PromptCache, TheEntryThatWasNotUsedForLongestIsGivenUp) {
  const Ids prompts[] = {random_ids(200, 1), random_ids(200, 2), random_ids(200, 3)};
  std::uint64_t one = 0;
  {
    const auto engine = open_engine(caching_options("none", kPlenty));
    ask(*engine, prompts[0], generation(1));
    one = cached_bytes(*engine);
    ASSERT_GT(one, 0U);
    // A longer text adds its own rows, and the same text nothing.
    ask(*engine, prompts[0], generation(1));
    EXPECT_EQ(cached_bytes(*engine), one);
    ask(*engine, joined({prompts[0], first(prompts[1], 50)}), generation(1));
    EXPECT_LE(cached_bytes(*engine), one * 13 / 10);
  }
  const auto engine = open_engine(caching_options("none", one * 11 / 5));
  ask(*engine, prompts[0], generation(1));
  ask(*engine, prompts[1], generation(1));
  EXPECT_EQ(kept(*engine, prompts[0]), 199);  // used again, so the other one is older
  ask(*engine, prompts[2], generation(1));
  EXPECT_EQ(cached_bytes(*engine), 2 * one);
  EXPECT_EQ(kept(*engine, prompts[0]), 199);
  EXPECT_EQ(kept(*engine, prompts[1]), 0);
  EXPECT_EQ(kept(*engine, prompts[2]), 199);
  // A text that cannot be held even so displaces nothing.
  ask(*engine, joined({prompts[0], random_ids(700, 4)}), generation(1));
  EXPECT_EQ(cached_bytes(*engine), 2 * one);
  EXPECT_EQ(kept(*engine, prompts[2]), 199);
  const auto none = open_engine(caching_options("none", one / 2));
  ask(*none, prompts[0], generation(1));
  EXPECT_EQ(cached_bytes(*none), 0U);
}

TEST(PromptCache, GivesWayBeforeASessionIsRefused) {
  EngineOptions options = caching_options("auto", kPlenty);
  {
    const auto engine = open_engine(options);
    const auto session = engine->create_session().value();
    // Weights, workspace and two sessions.
    options.memory_limit =
        engine->footprint().total_reserved() + session->footprint().total_reserved();
  }
  const auto engine = open_engine(options);
  const Ids prompt = random_ids(300, 1);
  const Ids other = random_ids(200, 2);
  ask(*engine, prompt);
  ask(*engine, other);
  const std::uint64_t both = cached_bytes(*engine);
  auto one = engine->create_session().value();
  EXPECT_EQ(cached_bytes(*engine), both);
  EXPECT_EQ(one->sync(prompt).value(), 299);
  {
    const auto two = engine->create_session();
    ASSERT_OK(two);
    EXPECT_EQ(engine->footprint().total_reserved(), options.memory_limit);
    EXPECT_EQ(cached_bytes(*engine), 0U);
    // With all memory in sessions nothing is kept, and they run as ever.
    const Answer answer = answer_to(**two, prompt, generation(20));
    EXPECT_EQ(answer.kept, 0);
    EXPECT_EQ(answer.ids, answer_to(*one, prompt, generation(20)).ids);
    EXPECT_EQ(cached_bytes(*engine), 0U);
  }
  one.reset();
  ask(*engine, prompt);
  EXPECT_GT(cached_bytes(*engine), 0U);
}

TEST(PromptCache, ForgetsWhatOneTextHasAndNoOther) {
  const auto engine = open_engine(caching_options("auto", kPlenty));
  const SessionOptions& options = engine->session_options();
  const auto held = [&](const Ids& ids) { return engine->cached_prefix(ids, options).tokens; };
  const Ids system = random_ids(150, 1);
  const Ids one = joined({system, random_ids(60, 2)});
  const Ids two = joined({system, random_ids(60, 3)});
  EXPECT_EQ(engine->forget_prefix(one, 0, options), 0U);
  ask(*engine, system);
  const std::uint64_t with_system = cached_bytes(*engine);
  const Ids first_turn = joined({one, ask(*engine, one).ids});
  const std::uint64_t with_one = cached_bytes(*engine);
  const Ids second_turn = joined({two, ask(*engine, two).ids});
  const CachedPrefix found = engine->cached_prefix(first_turn, options);
  EXPECT_EQ(found.tokens, 229);
  EXPECT_GE(found.bytes, with_one - with_system);
  // It has nothing for other options.
  SessionOptions other = options;
  other.drafting = false;
  EXPECT_EQ(engine->cached_prefix(first_turn, other).tokens, 0);
  EXPECT_EQ(engine->forget_prefix(first_turn, 0, other), 0U);
  const std::uint64_t before = cached_bytes(*engine);
  const std::uint64_t freed = engine->forget_prefix(first_turn, 0, options);
  EXPECT_EQ(before - cached_bytes(*engine), freed);
  EXPECT_EQ(freed, with_one - with_system);
  EXPECT_EQ(held(first_turn), held(system));
  EXPECT_GE(held(system), 150);
  EXPECT_EQ(held(two), 210);
  // The beginning that both had stays for others when the last of them goes, and so does what the
  // caller keeps.
  EXPECT_EQ(engine->forget_prefix(two, 0, options), 0U);  // another text goes on from it
  EXPECT_EQ(engine->forget_prefix(second_turn, 229, options), 0U);
  EXPECT_GT(engine->forget_prefix(second_turn, 210, options), 0U);
  EXPECT_EQ(held(second_turn), 210);
  EXPECT_GT(engine->forget_prefix(second_turn, 0, options), 0U);
  EXPECT_GE(held(two), 150);
  EXPECT_LT(held(two), 210);
  EXPECT_EQ(ask(*engine, two), ask(*open_engine(caching_options("auto", 0)), two));
}

TEST(PromptCache, ForgettingChangesNoTokenOfSessionsThatRun) {
  const auto engine = open_engine(caching_options("auto", kPlenty));
  const auto plain = open_engine(caching_options("auto", 0));
  std::array<Ids, 2> prompts;
  std::array<Ids, 2> texts;
  for (std::size_t i = 0; i < 2; ++i) {
    prompts[i] = joined({random_ids(150, 1), random_ids(60, 2 + i)});
    texts[i] = joined({prompts[i], ask(*plain, prompts[i]).ids});
  }
  const auto forget = [&](const Ids& text) {
    return engine->forget_prefix(text, 0, engine->session_options());
  };
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) {
        EXPECT_EQ(joined({prompts[t], ask(*engine, prompts[t]).ids}), texts[t]);
      }
    });
  }
  std::uint64_t freed = 0;
  for (std::size_t i = 0; i < 2000; ++i) freed += forget(texts[i % 2]);
  for (std::thread& thread : threads) thread.join();
  for (const Ids& text : texts) freed += forget(text);
  EXPECT_GT(freed, 0U);
}

TEST(PromptCache, GivesNothingWhereThatWouldNotBeEnough) {
  const auto model = TestModel::load(KAKEYA_DEMO_MODEL, {.name = "cpu"});
  const auto timeline = model->timeline({.context = 256, .max_rows = 64}, 1);
  ASSERT_OK(timeline->push(random_ids(100, 1)));
  ASSERT_OK(timeline->run_pending());
  PromptCache cache(kPlenty, model->budget());
  PromptCache::Cursor cursor(cache, {});
  cache.put(cursor, {.timeline = timeline.get()});
  const std::uint64_t held = cache.bytes();
  ASSERT_GT(held, 0U);
  EXPECT_EQ(cache.num_entries(), 1);
  EXPECT_FALSE(
      model->budget().allocate(MemoryClass::kLogits, MemoryBudget::kUnlimited).has_value());
  EXPECT_EQ(cache.bytes(), held);
  EXPECT_FALSE(cache.reclaim(held + 1));
  EXPECT_TRUE(cache.reclaim(held));
  EXPECT_EQ(cache.bytes(), 0U);
  EXPECT_FALSE(cache.reclaim(1));
}

// A fork allocates when it runs something: copies of blocks.
TEST(PromptCache, GivesWayToAFork) {
  EngineOptions options = caching_options("auto", 0);
  const Ids prompt = random_ids(300, 1);
  const Ids next = joined({prompt, random_ids(40, 2)});
  const auto begin = [&](Engine& engine) {
    auto session = engine.create_session().value();
    answer_to(*session, prompt, generation(10));
    return session;
  };
  Answer expected;
  {
    const auto engine = open_engine(options);
    const auto session = begin(*engine);
    expected = answer_to(*session->fork().value(), next, generation(100));
    const auto fork = session->fork().value();
    answer_to(*fork, next, generation(100));
    options.memory_limit =
        engine->footprint().total_reserved() + session->footprint().total_reserved();
  }
  // Two sessions, and what the fork needs.
  options.prompt_cache_bytes = kPlenty;
  const auto engine = open_engine(options);
  const auto session = begin(*engine);
  const auto another = engine->create_session().value();
  for (std::uint64_t i = 0; i < 8; ++i) answer_to(*another, random_ids(200, 10 + i), generation(1));
  const std::uint64_t before = cached_bytes(*engine);
  const std::uint64_t room = options.memory_limit - engine->footprint().total_reserved();
  const auto fork = session->fork().value();
  EXPECT_EQ(answer_to(*fork, next, generation(100)), expected);
  EXPECT_LT(cached_bytes(*engine), before);
  EXPECT_LT(room, before);
}

// The costs of looking up and keeping in each turn of a session: tokens compared, nodes visited.
std::vector<std::uint64_t> costs_of_turns(const EngineImpl& engine,
                                          std::size_t turns,
                                          const std::function<void(std::size_t)>& run_turn) {
  std::vector<std::uint64_t> costs;
  for (std::size_t i = 0; i < turns; ++i) {
    const std::uint64_t before = engine.prompt_cache()->lookup_cost();
    run_turn(i);
    costs.push_back(engine.prompt_cache()->lookup_cost() - before);
  }
  return costs;
}

// However its text came to be: appended, handed over as a whole, or with an end that is rewritten;
// in a cache that keeps all of it, or is full after a few turns.
TEST(PromptCache, ATurnCostsTheSameHoweverLongTheText) {
  constexpr std::size_t kTurns = 70;
  constexpr std::size_t kNew = 40;  // tokens of a turn, a few more with the answer
  for (const std::uint64_t limit : {kPlenty, std::uint64_t{4} << 20}) {
    EngineOptions options = caching_options("none", limit);
    options.session.context = 8192;
    const auto engine = EngineImpl::open(options).value();
    const auto expect_constant = [&](const char* what, const auto& run_turn) {
      const auto costs = costs_of_turns(*engine, kTurns, [&](std::size_t i) {
        run_turn(i);
        EXPECT_LE(engine->prompt_cache()->bytes(), limit) << what << ", turn " << i;
      });
      const std::uint64_t early = *std::max_element(costs.begin() + 5, costs.begin() + 20);
      const std::uint64_t late = *std::max_element(costs.end() - 20, costs.end());
      EXPECT_LE(late, early + 8) << what << ", limit " << limit;
      EXPECT_LE(late, 3 * kNew) << what << ", limit " << limit;
    };
    const auto appended = engine->create_session().value();
    expect_constant("appended", [&](std::size_t i) {
      ASSERT_OK(appended->append(random_ids(kNew, i)));
      ASSERT_OK(appended->generate(generation(5)));
    });
    const auto synced = engine->create_session().value();
    Ids text;
    expect_constant("whole texts", [&](std::size_t i) {
      text = joined({text, random_ids(kNew, 1000 + i)});
      ASSERT_OK(synced->sync(text));
      ASSERT_OK(synced->generate(generation(5)));
      text = {synced->tokens().begin(), synced->tokens().end()};
    });
    const auto rewritten = engine->create_session().value();
    expect_constant("rewritten ends", [&](std::size_t i) {
      const auto kept = std::max<std::int64_t>(0, std::ssize(rewritten->tokens()) - 10);
      ASSERT_OK(rewritten->truncate(kept));
      ASSERT_OK(rewritten->append(random_ids(kNew, 2000 + i)));
      ASSERT_OK(rewritten->generate(generation(5)));
    });
  }
}

// A session that begins knows nothing of its text: it is compared once, and each part of it that an
// entry holds is a few nodes.
TEST(PromptCache, ANewSessionComparesItsTextOnce) {
  EngineOptions options = caching_options("none", kPlenty);
  options.session.context = 4096;
  const auto engine = EngineImpl::open(options).value();
  const auto session = engine->create_session().value();
  for (std::uint64_t i = 0; i < 60; ++i) {
    ASSERT_OK(session->append(random_ids(40, i)));
    ASSERT_OK(session->generate(generation(5)));
    ask(*engine, joined({{session->tokens().begin(), session->tokens().end()}, random_ids(20, i)}),
        generation(1));
  }
  const Ids text(session->tokens().begin(), session->tokens().end());
  const auto another = engine->create_session().value();
  const std::uint64_t before = engine->prompt_cache()->lookup_cost();
  EXPECT_EQ(another->sync(text).value(), std::ssize(text) - 1);
  const std::uint64_t cost = engine->prompt_cache()->lookup_cost() - before;
  EXPECT_GE(cost, text.size());
  EXPECT_LE(cost, text.size() + 60 * 10);
}

TEST(PromptCache, ProgressOfASplitPromptIsThatOfOne) {
  const auto engine = open_engine(caching_options("none", kPlenty));
  const Ids prompt = random_ids(400, 1);
  ask(*engine, prompt);
  const auto session = engine->create_session().value();
  ASSERT_EQ(session->sync(joined({first(prompt, 100), random_ids(200, 2)})).value(), 0);
  std::vector<std::int64_t> calls;
  ASSERT_OK(session->prefill([&](std::int64_t done, std::int64_t total) {
    EXPECT_EQ(total, 299);  // the last token waits
    calls.push_back(done);
    return true;
  }));
  EXPECT_EQ(calls, (std::vector<std::int64_t>{64, 100, 164, 228, 292, 299}));
  // Cancelled where it is split: what was run stays.
  const Ids other = random_ids(400, 3);
  ask(*engine, other);
  const auto cancelled = engine->create_session().value();
  ASSERT_EQ(cancelled->sync(joined({first(other, 100), random_ids(200, 4)})).value(), 0);
  const Status status =
      cancelled->prefill([](std::int64_t done, std::int64_t) { return done < 100; });
  EXPECT_EQ(status.error().code(), StatusCode::kCancelled);
  EXPECT_EQ(cancelled->position(), 100);
}

// One thread's entries are taken, given up and made while others do the same, with memory for the
// sessions and little more, so that all of it happens at the same time.
TEST(PromptCache, SeveralThreadsUseItAtOnce) {
  EngineOptions options = caching_options("auto", std::uint64_t{3} << 20);
  std::vector<Ids> prompts;
  std::vector<Ids> expected;
  {
    const auto plain = open_engine(caching_options("auto", 0));
    for (std::uint64_t i = 0; i < 6; ++i) {
      prompts.push_back(joined({random_ids(90, 1 + i / 3), random_ids(70, 10 + i)}));
      expected.push_back(ask(*plain, prompts.back(), generation(8)).ids);
    }
    const std::array sessions = {plain->create_session().value(), plain->create_session().value(),
                                 plain->create_session().value()};
    options.memory_limit = plain->footprint().total_reserved() + (std::uint64_t{1} << 20);
  }
  const auto engine = open_engine(options);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < 2 * prompts.size(); ++i) {
        const std::size_t which = (i * (t + 1) + t) % prompts.size();
        EXPECT_EQ(ask(*engine, prompts[which], generation(8)).ids, expected[which]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(cached_bytes(*engine), options.prompt_cache_bytes);
}

}  // namespace
}  // namespace kakeya::test
