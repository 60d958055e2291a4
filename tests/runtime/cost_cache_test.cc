// Costs on disk: what is stored comes back, and nothing else ever does.
#include "runtime/cost_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "kakeya/version.h"

namespace kakeya::test {
namespace {

namespace fs = std::filesystem;

const CostKey kKey = {.binary = "1.0 \"x\"", .model = "a model\n", .machine = "a CPU \xc3\xa9"};

RoundCosts some_costs(double factor = 1.0) {
  return {.verify = {factor * 0.1, factor / 3.0, factor * 0.7},
          .draft = {{factor * 1e-7, 0.0}, {factor * 0.02, factor * 0.025}}};
}

class CostCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "kakeya_costs_" + std::to_string(::getpid());
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string folder() const { return folder_; }

  // The only file.
  std::string path() const { return fs::directory_iterator(folder_)->path(); }

  std::string text() const {
    std::ifstream file(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  bool loads_as(const std::string& text) const {
    std::ofstream(path(), std::ios::binary | std::ios::trunc) << text;
    return load_costs(folder_, kKey).has_value();
  }

  // Whether the stored document still loads with `value` at `pointer`.
  bool loads_with(const std::string& pointer, const nlohmann::json& value) const {
    auto document = nlohmann::json::parse(original_);
    document[nlohmann::json::json_pointer(pointer)] = value;
    return loads_as(document.dump());
  }

  void store() {
    ASSERT_TRUE(store_costs(folder_, kKey, some_costs()).has_value());
    original_ = text();
  }

  std::string original_;

 private:
  std::string folder_;
};

TEST_F(CostCacheTest, GivesBackExactlyWhatWasStored) {
  EXPECT_FALSE(load_costs(folder(), kKey).has_value());
  const std::string nested = folder() + "/a/b";
  ASSERT_TRUE(store_costs(nested, kKey, some_costs()).has_value());
  const auto loaded = load_costs(nested, kKey);
  ASSERT_TRUE(loaded.has_value());
  EXPECT_EQ(loaded->verify, some_costs().verify);
  EXPECT_EQ(loaded->draft, some_costs().draft);

  ASSERT_TRUE(store_costs(nested, kKey, some_costs(2.0)).has_value());
  EXPECT_EQ(load_costs(nested, kKey)->verify, some_costs(2.0).verify);
  EXPECT_EQ(std::distance(fs::directory_iterator(nested), {}), 1) << "no temporary file stays";

  const RoundCosts no_drafter = {.verify = {0.1, 0.2}, .draft = {}};
  ASSERT_TRUE(store_costs(nested, kKey, no_drafter).has_value());
  EXPECT_TRUE(load_costs(nested, kKey)->draft.empty());
}

TEST_F(CostCacheTest, NeverGivesCostsOfAnotherKey) {
  store();
  for (std::string CostKey::*part : {&CostKey::binary, &CostKey::model, &CostKey::machine}) {
    CostKey other = kKey;
    other.*part += "!";
    EXPECT_FALSE(load_costs(folder(), other).has_value());
  }
  // Nor when the name of the file agrees.
  EXPECT_TRUE(loads_as(original_));
  EXPECT_FALSE(loads_with("/binary", "other"));
  EXPECT_FALSE(loads_with("/model", "other"));
  EXPECT_FALSE(loads_with("/machine", "other"));
  EXPECT_FALSE(loads_with("/machine", 1));
  EXPECT_FALSE(loads_with("/version", 2));
}

TEST_F(CostCacheTest, RefusesWhatIsNoFileOfItsOwn) {
  store();
  for (std::size_t size = 0; size + 1 < original_.size(); ++size) {
    EXPECT_FALSE(loads_as(original_.substr(0, size))) << size << " bytes";
  }
  EXPECT_FALSE(loads_as("[]"));
  EXPECT_FALSE(loads_as("{}"));
  EXPECT_FALSE(loads_as(std::string(100, '\0')));
  EXPECT_TRUE(loads_as(original_ + std::string(1000, ' ')));
  EXPECT_FALSE(loads_as(original_ + std::string(1 << 20, ' '))) << "larger than 1 MiB";

  const std::string place = path();
  fs::remove(place);
  fs::create_directory(place);
  EXPECT_FALSE(load_costs(folder(), kKey).has_value());
  EXPECT_FALSE(store_costs(folder(), kKey, some_costs()).has_value());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder()), {}), 1) << "no temporary file stays";
  fs::remove(place);
  ASSERT_EQ(::mkfifo(place.c_str(), 0600), 0);
  EXPECT_FALSE(load_costs(folder(), kKey).has_value()) << "and does not wait for a writer";
}

TEST_F(CostCacheTest, RefusesValuesThatAreNoCosts) {
  store();
  EXPECT_TRUE(loads_with("/verify/0", 1));
  for (const nlohmann::json& bad :
       std::vector<nlohmann::json>{0, -0.1, 3601, nullptr, "1", true, nlohmann::json::array()}) {
    EXPECT_FALSE(loads_with("/verify/0", bad)) << bad;
  }
  for (const nlohmann::json& bad : std::vector<nlohmann::json>{-0.1, 3601, nullptr, "1"}) {
    EXPECT_FALSE(loads_with("/draft/1/0", bad)) << bad;
  }
  EXPECT_FALSE(loads_with("/verify", {0.1}));
  EXPECT_FALSE(loads_with("/verify", {0.1, 0.2}));
  EXPECT_FALSE(loads_with("/verify", std::vector<double>(65, 0.1)));
  EXPECT_FALSE(loads_with("/draft/0", {0.1}));
  EXPECT_FALSE(loads_with("/draft/0", 1));
  EXPECT_FALSE(loads_with("/draft", 1));
  EXPECT_FALSE(loads_with("/draft", std::vector<std::vector<double>>(17, {0.1, 0.1})));
  EXPECT_FALSE(loads_as(original_.replace(original_.find("0.1"), 3, "1e999")));
}

TEST_F(CostCacheTest, StoresNothingThatItWouldNotLoad) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity(), 0.0, -1.0}) {
    RoundCosts costs = some_costs();
    costs.verify[1] = bad;
    const Status stored = store_costs(folder(), kKey, costs);
    ASSERT_FALSE(stored.has_value());
    EXPECT_EQ(stored.error().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(store_costs(folder(), kKey, {}).has_value());
  CostKey key = kKey;
  key.model = "\xff";
  EXPECT_FALSE(store_costs(folder(), key, some_costs()).has_value());
  EXPECT_FALSE(fs::exists(folder()));
}

TEST_F(CostCacheTest, SaysThatAFolderCannotBeWritten) {
  fs::create_directories(folder());
  std::ofstream(folder() + "/file") << "x";
  for (const std::string& bad :
       {folder() + "/file", folder() + "/file/below", std::string("/proc/kakeya"), std::string()}) {
    const Status stored = store_costs(bad, kKey, some_costs());
    ASSERT_FALSE(stored.has_value()) << bad;
    EXPECT_EQ(stored.error().code(), StatusCode::kUnavailable);
    EXPECT_FALSE(load_costs(bad, kKey).has_value());
  }
}

TEST_F(CostCacheTest, ShowsReadersWholeFilesWhileManyWrite) {
  ASSERT_TRUE(store_costs(folder(), kKey, some_costs()).has_value());
  std::vector<std::thread> writers;
  for (int w = 1; w <= 3; ++w) {
    writers.emplace_back([this, w] {
      for (int i = 0; i < 200; ++i) {
        EXPECT_TRUE(store_costs(folder(), kKey, some_costs(w)).has_value());
      }
    });
  }
  for (int i = 0; i < 500; ++i) {
    const auto costs = load_costs(folder(), kKey);
    ASSERT_TRUE(costs.has_value());
    const double factor = std::round(costs->verify[0] / 0.1);
    EXPECT_EQ(costs->draft, some_costs(factor).draft);
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(std::distance(fs::directory_iterator(folder()), {}), 1);
}

TEST(CostCacheText, NamesThePlaceTheMachineAndTheProgram) {
  EXPECT_EQ(default_cache_folder("/x", "/home/me"), "/x/kakeya");
  EXPECT_EQ(default_cache_folder("", "/home/me"), "/home/me/.cache/kakeya");
  EXPECT_EQ(default_cache_folder("relative", "/home/me"), "/home/me/.cache/kakeya");
  EXPECT_EQ(default_cache_folder("", ""), "");
  EXPECT_NE(machine_text(2, "cpu"), machine_text(3, "cpu"));
  EXPECT_NE(machine_text(2, "cpu"), machine_text(2, "ref"));
  EXPECT_TRUE(binary_text().starts_with(kVersion));
  EXPECT_GT(binary_text().size(), std::string(kVersion).size());
}

}  // namespace
}  // namespace kakeya::test
