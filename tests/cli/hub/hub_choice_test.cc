// Names of the Hub, its listings, and which files of a repository a model needs.
#include "cli/hub/hub_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "cli/hub/hub_settings.h"

namespace kakeya::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kCommit(40, 'a');
const std::string kSha256(64, 'b');

HubListing listing_of(const std::vector<std::pair<std::string, std::uint64_t>>& files) {
  HubListing listing = {.commit = kCommit, .files = {}};
  for (const auto& [path, bytes] : files) {
    listing.files.push_back({.path = path, .bytes = bytes, .hash = kSha256, .is_sha256 = true});
  }
  return listing;
}

// The chosen paths; the error's message alone if there is none.
std::vector<std::string> chosen(const std::string& name, const HubListing& listing) {
  const auto parsed = parse_hub_name(name);
  if (!parsed) return {parsed.error().message()};
  const auto choice = choose_files(*parsed, listing);
  if (!choice) return {choice.error().message()};
  std::vector<std::string> paths;
  for (const HubFile& file : choice->files) paths.push_back(file.path);
  return paths;
}

TEST(HubName, IsOwnerAndNameWithWhatIsWanted) {
  const auto plain = parse_hub_name("Qwen/Qwen3-0.6B");
  ASSERT_TRUE(plain) << plain.error().message();
  EXPECT_EQ(plain->repository, "Qwen/Qwen3-0.6B");
  EXPECT_EQ(plain->wanted, "");
  const auto file = parse_hub_name("a_b/c:UD-Q4_K_XL/x-00001-of-00002.gguf");
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_EQ(file->wanted, "UD-Q4_K_XL/x-00001-of-00002.gguf");
  for (const char* const text :
       {"",      "a",     "a/",   "/a",       "a/b/c",  "a//b",    "../b",
        "a/..",  "a/.b",  "a/b:", "a/b:../c", "a/b:c:", "a/b--c",  "a/b..c",
        "a/b c", "a/b?c", "-a/b", "./a",      "a/b\n",  "a/b:c\\d"}) {
    EXPECT_FALSE(parse_hub_name(text)) << text;
  }
}

TEST(HubName, KnowsPathsThatStay) {
  for (const char* const path : {"a", "a/b.json", "a b", "..a", "a..b/c", "\xE3\x81\x82"}) {
    EXPECT_TRUE(is_safe_path(path)) << path;
  }
  for (const char* const path :
       {"", "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "a\\b", "a\nb", "a\x7F"}) {
    EXPECT_FALSE(is_safe_path(path)) << path;
  }
  EXPECT_EQ(url_path("a b/c?d#e%"), "a%20b/c%3Fd%23e%25");
  EXPECT_EQ(url_segment("refs/pr/1"), "refs%2Fpr%2F1");
}

TEST(HubListing, HasSizesAndHashes) {
  const std::string sha1(40, 'c');
  const auto listing =
      parse_hub_listing(R"({"sha": ")" + kCommit +
                        R"(", "siblings": [{"rfilename": "config.json", "size": 5, "blobId": ")" +
                        sha1 + R"("}, {"rfilename": "x.gguf", "size": 7, "blobId": ")" + sha1 +
                        R"(", "lfs": {"sha256": ")" + kSha256 + R"("}}]})");
  ASSERT_TRUE(listing) << listing.error().message();
  EXPECT_EQ(listing->commit, kCommit);
  EXPECT_EQ(listing->find("config.json")->hash, sha1);
  EXPECT_FALSE(listing->find("config.json")->is_sha256);
  EXPECT_EQ(listing->find("x.gguf")->hash, kSha256);
  EXPECT_EQ(listing->find("x.gguf")->bytes, 7U);
  EXPECT_EQ(listing->find("y.gguf"), nullptr);
}

TEST(HubListing, RefusesWhatIsNone) {
  const std::string begin = R"({"sha": ")" + kCommit + R"(", "siblings": [)";
  for (const std::string& text :
       {std::string("<html>"), std::string("[]"), std::string("{}"), begin, begin + "1]}",
        begin + R"({"rfilename": "a"}]})", begin + R"({"rfilename": "a", "size": -1}]})",
        begin + R"({"rfilename": "a", "size": 1, "blobId": "../x"}]})",
        begin + R"({"rfilename": "a", "size": 1, "lfs": {}}]})",
        std::string(R"({"sha": "main", "siblings": []})")}) {
    EXPECT_FALSE(parse_hub_listing(text)) << text;
  }
  EXPECT_FALSE(files_of_index("{}"));
  EXPECT_FALSE(files_of_index(R"({"weight_map": {"a": 1}})"));
  EXPECT_THAT(*files_of_index(R"({"weight_map": {"a": "2", "b": "1", "c": "2"}})"),
              ElementsAre("1", "2"));
}

TEST(HubChoice, TakesOneGgufFile) {
  const HubListing listing = listing_of({{"README.md", 1},
                                         {"config.json", 1},
                                         {"x-BF16.gguf", 90},
                                         {"x-Q4_K_M.gguf", 40},
                                         {"x-UD-Q4_K_M.gguf", 41},
                                         {"mmproj-x-F16.gguf", 500}});
  EXPECT_THAT(chosen("a/x", listing), ElementsAre("x-BF16.gguf"));
  EXPECT_THAT(chosen("a/x:q4_k_m", listing), ElementsAre("x-UD-Q4_K_M.gguf"));
  EXPECT_THAT(chosen("a/x:x-Q4_K_M.gguf", listing), ElementsAre("x-Q4_K_M.gguf"));
  EXPECT_THAT(choose_files({"a/x", ""}, listing)->note,
              HasSubstr("a/x is x-BF16.gguf (90 B); there are also x-UD-Q4_K_M.gguf (41 B)"));
  EXPECT_THAT(chosen("a/x:Q8_0", listing)[0], HasSubstr("there is x-BF16.gguf (90 B), x-Q4_K_M"));
}

TEST(HubChoice, TakesAllPartsOfASplitFile) {
  HubListing listing = listing_of({{"Q8_0/x-Q8_0-00002-of-00002.gguf", 60},
                                   {"Q8_0/x-Q8_0-00001-of-00002.gguf", 60},
                                   {"y-Q8_0-00002-of-00002.gguf", 60},
                                   {"x-Q4_0.gguf", 100}});
  const auto parts =
      ElementsAre("Q8_0/x-Q8_0-00001-of-00002.gguf", "Q8_0/x-Q8_0-00002-of-00002.gguf");
  EXPECT_THAT(chosen("a/x", listing), parts);
  EXPECT_THAT(chosen("a/x:Q8_0", listing), parts);
  listing.files.erase(listing.files.begin());
  EXPECT_THAT(chosen("a/x:Q8_0", listing)[0], HasSubstr("expected 2 parts"));
}

TEST(HubChoice, TakesWeightsInSafetensorsWithWhatTheyNeed) {
  HubListing listing = listing_of({{"config.json", 1},
                                   {"generation_config.json", 1},
                                   {"tokenizer.json", 1},
                                   {"chat_template.jinja", 1},
                                   {"modeling_x.py", 1},
                                   {"pytorch_model.bin", 900},
                                   {"onnx/model.onnx", 900},
                                   {"model.safetensors", 500}});
  EXPECT_THAT(chosen("a/x", listing),
              ElementsAre("config.json", "generation_config.json", "tokenizer.json",
                          "chat_template.jinja", "model.safetensors"));
  listing.files.push_back({.path = kWeightsIndex, .bytes = 1, .hash = kSha256});
  EXPECT_EQ(chosen("a/x", listing).back(), kWeightsIndex);
  EXPECT_TRUE(choose_files({"a/x", ""}, listing)->is_split);
  EXPECT_THAT(chosen("a/x", listing_of({{"pytorch_model.bin", 9}, {"config.json", 1}}))[0],
              HasSubstr("got pytorch_model.bin, config.json"));
  EXPECT_THAT(chosen("a/x", listing_of({{"model.safetensors", 9}}))[0], HasSubstr("expected"));
}

TEST(HubSettings, AreThoseOfTheHubsLibraries) {
  std::map<std::string, std::string> variables = {{"HOME", "/nowhere"}};
  const auto settings = [&] {
    return hub_settings([&](const std::string& name) { return variables[name]; });
  };
  EXPECT_EQ(settings()->endpoint, "https://huggingface.co");
  EXPECT_EQ(settings()->cache, "/nowhere/.cache/huggingface/hub");
  EXPECT_EQ(settings()->token, "");
  variables = {{"HF_HOME", "/h"}, {"HF_TOKEN", " t \n"}, {"HF_ENDPOINT", "http://mirror/"}};
  EXPECT_EQ(settings()->endpoint, "http://mirror");
  EXPECT_EQ(settings()->cache, "/h/hub");
  EXPECT_EQ(settings()->token, "t");
  variables["HF_TOKEN"] = "a\r\nHost: b";
  EXPECT_FALSE(settings());
  variables = {{"HOME", "/h"}, {"HF_HUB_OFFLINE", "true"}};
  EXPECT_EQ(settings().error().code(), StatusCode::kFailedPrecondition);
  variables = {};
  EXPECT_FALSE(settings());
}

}  // namespace
}  // namespace kakeya::cli
