// Names of replicas in ids: what is a name, and who made an id.
#include "service/replica_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

#include "base/random_id.h"

namespace kakeya::service {
namespace {

TEST(ReplicaName, IsCheckedByOneLine) {
  for (const char* const name : {"a", "replica-1", "0", "-", "gpu7-8080"}) {
    EXPECT_TRUE(check_replica_name(name)) << name;
  }
  EXPECT_TRUE(check_replica_name(std::string(48, 'a')));
  for (const std::string& name : {std::string(), std::string(49, 'a'), std::string("A"),
                                  std::string("a_b"), std::string("a.b"), std::string("a b")}) {
    const Status checked = check_replica_name(name);
    ASSERT_FALSE(checked) << name;
    EXPECT_EQ(
        checked.error().message(),
        "SessionsOptions::replica_name: expected 1 to 48 characters of a-z, 0-9 and -, got '" +
            name + "'");
  }
}

TEST(ReplicaName, IsMadeOfHostAndPort) {
  EXPECT_EQ(replica_name_of("Host_7.Example", 8080), "host-7-example-8080");
  EXPECT_EQ(replica_name_of("", 1), "replica-1");
  EXPECT_EQ(replica_name_of(std::string(300, 'h'), 65535), std::string(42, 'h') + "-65535");
  EXPECT_THAT(replica_name_of("h", 0), testing::MatchesRegex("h-[0-9a-f]{5}"));
  EXPECT_TRUE(check_replica_name(default_replica_name(8080)));
}

TEST(ReplicaName, IsReadFromItsIds) {
  const std::string digits(32, 'a');
  EXPECT_EQ(replica_of("resp_replica-1_" + digits), "replica-1");
  EXPECT_EQ(replica_of("sess-a-b_" + digits), "a-b");
  EXPECT_EQ(made_by("resp_a_" + digits), ", made by replica 'a'");
  const std::string of_digits(32, '0');
  EXPECT_EQ(replica_of("resp_" + of_digits + "_" + digits), of_digits);
  // Ids of earlier versions, and what clients name themselves.
  for (const std::string& id :
       {"resp_" + digits, "sess-" + digits, std::string("resp_1"), std::string("_"), std::string(),
        "resp__" + digits, "resp_A_" + digits, "chatcmpl_a_" + digits, "resp_a_" + digits + "0",
        "resp_a_b_" + digits, "resp_a_" + std::string(32, 'g'),
        "resp_" + std::string(49, 'a') + "_" + digits}) {
    EXPECT_EQ(replica_of(id), "") << id;
    EXPECT_EQ(made_by(id), "") << id;
  }
}

TEST(ReplicaName, NoTwoIdsOfReplicasThatStartTogetherAreAlike) {
  constexpr std::size_t kReplicas = 8;
  constexpr std::size_t kEach = 100'000 / kReplicas;
  std::vector<std::vector<std::string>> made(kReplicas);
  {
    std::vector<std::jthread> replicas;
    for (std::size_t i = 0; i < kReplicas; ++i) {
      replicas.emplace_back([i, &ids = made[i]] {
        // Two have the same name by mistake.
        const std::string name = "replica" + std::to_string(i == 7 ? 0 : i);
        for (std::size_t j = 0; j < kEach; ++j)
          ids.push_back(random_id(id_prefix_of("resp_", name)));
      });
    }
  }
  std::set<std::string> all;
  std::set<std::string> random;
  for (std::size_t i = 0; i < kReplicas; ++i) {
    for (const std::string& id : made[i]) {
      EXPECT_EQ(replica_of(id), "replica" + std::to_string(i == 7 ? 0 : i));
      random.insert(id.substr(id.size() - 32));
    }
    all.insert(made[i].begin(), made[i].end());
  }
  EXPECT_EQ(all.size(), 100'000U);
  EXPECT_EQ(random.size(), 100'000U);
}

}  // namespace
}  // namespace kakeya::service
