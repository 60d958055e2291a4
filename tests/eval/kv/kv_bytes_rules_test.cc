// Bytes of keys and values follow from those of the exact mode.
#include "eval/kv/kv_bytes_rules.h"

#include <gtest/gtest.h>

#include <string>

#include "eval/report/made_reports.h"

namespace kakeya::eval {
namespace {

Report& mode_of(Report& kv, const std::string& name) {
  for (Report& mode : kv["texts"][2]["modes"]) {
    if (mode["mode"] == name) return mode;
  }
  return kv["texts"][0]["modes"][0];
}

// More bytes of a kind, and in all.
void add_bytes(Report& mode, const char* kind, std::int64_t bytes) {
  for (const char* name : {kind, "total"}) {
    mode["kv_bytes"][name] = mode["kv_bytes"][name].get<std::int64_t>() + bytes;
  }
}

TEST(KvBytesRules, RejectBytesThatDoNotFollow) {
  expect_rejected(
      kept_report("kv"),
      {{"bytes", [](Report& r) { add_bytes(mode_of(r, "exact"), "full", 3); }},
       {"bytes", [](Report& r) { add_bytes(mode_of(r, "f32"), "full", -4096); }},
       {"bytes", [](Report& r) { add_bytes(mode_of(r, "int8"), "full", -4096); }},
       {"bytes", [](Report& r) { add_bytes(mode_of(r, "e8"), "sliding", -4096); }},
       {"bytes", [](Report& r) { add_bytes(mode_of(r, "int8-full"), "sliding", -4096); }},
       {"bytes", [](Report& r) { add_bytes(mode_of(r, "drop-full"), "full", -512); }},
       {"bytes", [](Report& r) { add_bytes(mode_of(r, "restore-full-aux"), "full", -512); }},
       {"bytes", [](Report& r) { add_bytes(mode_of(r, "drop"), "codes", 512); }},
       {"bytes", [](Report& r) { mode_of(r, "int8")["kv_bytes_per_token"] = 200.0; }},
       {"bytes", [](Report& r) { mode_of(r, "restore-full-aux")["kv_bytes_per_token"] = 9.0; }},
       {"counts", [](Report& r) { mode_of(r, "int8")["top1_agreement"] = 0.99; }}});
}

TEST(KvBytesRules, RejectCodesOfOtherBits) {
  expect_rejected(kept_report("kv-codes-smollm2"), {{"bytes", [](Report& r) {
                                                       for (Report& mode : r["texts"][0]["modes"]) {
                                                         if (mode["mode"] == "k3v3")
                                                           add_bytes(mode, "codes", -4096);
                                                       }
                                                     }}});
}

}  // namespace
}  // namespace kakeya::eval
