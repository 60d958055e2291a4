// Times of decoding with keys and values kept in several ways.
#include "eval/kv/kv_times.h"

#include <gtest/gtest.h>

#include <vector>

#include "eval/report/made_reports.h"

namespace kakeya::eval {
namespace {

TEST(KvTimes, AreOfAllModesInTurns) {
  const auto engine =
      EngineImpl::open({.model_dir = KAKEYA_DEMO_MODEL, .num_threads = 2}, {}).value();
  const std::vector<KvMode> modes = choose_kv_modes({"exact", "int8", "drop-512"}).value();
  const std::vector<TokenId> text(40, 17);
  const auto times = measure_kv_times(*engine, modes, text, {});
  ASSERT_TRUE(times.has_value()) << times.error().message();
  EXPECT_EQ(times->length, 40);
  ASSERT_EQ(times->modes.size(), modes.size());
  for (std::size_t i = 0; i < modes.size(); ++i) {
    EXPECT_EQ(times->modes[i].mode, modes[i].name);
    EXPECT_EQ(times->modes[i].seconds.size(), 5U);
    EXPECT_GT(times->ratio(i), 0.0);
  }
  EXPECT_EQ(times->ratio(0), 1.0);
  // Decoding goes on behind the text: there must be room for it.
  const std::vector<TokenId> whole(static_cast<std::size_t>(engine->max_context()), 17);
  EXPECT_FALSE(measure_kv_times(*engine, modes, whole, {}).has_value());
}

TEST(KvTimes, RatioIsTheMedianOfTurns) {
  const KvLengthTimes times{.length = 1,
                            .steps = 1,
                            .modes = {{.mode = "exact", .seconds = {1.0, 2.0, 4.0}},
                                      {.mode = "other", .seconds = {2.0, 2.0, 12.0}}}};
  EXPECT_EQ(times.ratio(1), 2.0);
}

TEST(KvTimes, OfReportsAreComputedAnew) {
  const auto mode = [](Report& r) -> Report& { return r["times"][0]["modes"][2]; };
  expect_rejected(kept_report("kv-time-smollm2"),
                  {{"headline", [&](Report& r) { mode(r)["ratio"] = 0.9; }},
                   {"headline", [&](Report& r) { mode(r)["seconds"][2] = 0.31; }},
                   {"same-run", [&](Report& r) { mode(r)["seconds"].erase(0); }},
                   {"spread", [&](Report& r) { mode(r)["seconds"][0] = 9.0; }},
                   {"samples", [&](Report& r) { r["times"][0]["modes"][0]["seconds"][1] = 0.05; }},
                   {"counts", [&](Report& r) { r["times"].erase(0); }},
                   {"counts", [&](Report& r) { mode(r)["mode"] = "k2v2"; }},
                   {"provenance", [](Report& r) { r["options"]["times"] = false; }}});
}

}  // namespace
}  // namespace kakeya::eval
