// The catalogue of sessions: what it was told is there, whoever owns it, whatever ends its process.
#include "service/sessions/catalogue.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

#include "runtime/demo_sessions.h"
#include "service/sessions/damaged_files.h"

namespace kakeya::service {
namespace {

using test::Ids;
using testing::HasSubstr;

Ids ids_from(TokenId first, std::size_t count) {
  Ids ids(count);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

class CatalogueTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "catalogue-" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Catalogue> open(const std::string& model = "one", std::int64_t most = 100) {
    auto catalogue = Catalogue::open(folder_, model, most);
    EXPECT_TRUE(catalogue.has_value()) << catalogue.error().message();
    return std::move(catalogue).value();
  }
  std::string file() const { return folder_ + "/sessions.sqlite"; }

  std::string folder_;
};

TEST_F(CatalogueTest, KeepsWhatItWasTold) {
  const SessionRow row = {
      .id = "a",
      .owner = "ann",
      .label = "a label",
      .mode = {.decoding = Decoding::kPlain, .evicted = Evicted::kDrop, .sink = 4, .window = 64},
      .stop_ids = {7, 9}};
  {
    const auto catalogue = open();
    ASSERT_TRUE(catalogue->add(row));
    ASSERT_TRUE(catalogue->set_tokens("ann", "a", 0, ids_from(0, 3)));
  }
  const auto catalogue = open();
  const SessionRow found = catalogue->find("ann", "a").value();
  EXPECT_EQ(found.label, row.label);
  EXPECT_EQ(found.mode, row.mode);
  EXPECT_EQ(found.stop_ids, row.stop_ids);
  EXPECT_EQ(found.tokens, 3);
  EXPECT_GT(found.used, 1.7e9);
  EXPECT_EQ(catalogue->tokens("ann", "a").value(), ids_from(0, 3));
}

// Every length around the ends of pieces, against a vector.
TEST_F(CatalogueTest, TokensAreThoseOfAVectorThatIsCutAndAddedTo) {
  const auto catalogue = open();
  ASSERT_TRUE(catalogue->add({.id = "a", .owner = "ann"}));
  std::mt19937 random(5);
  Ids expected;
  for (int round = 0; round < 400; ++round) {
    const auto piece = static_cast<std::int64_t>(Catalogue::kPieceTokens);
    const std::int64_t sizes[] = {0, 1, 2, piece - 1, piece, piece + 1, 2 * piece + 3};
    const std::int64_t added = sizes[random() % std::size(sizes)];
    std::int64_t length = std::ssize(expected);
    if (round % 3 == 0) {
      length = static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(length + 1));
      if (round % 2 == 0) length -= length % piece;
    }
    const Ids ids =
        ids_from(static_cast<TokenId>(random() % 1000), static_cast<std::size_t>(added));
    ASSERT_TRUE(catalogue->set_tokens("ann", "a", length, ids));
    expected.resize(static_cast<std::size_t>(length));
    expected.insert(expected.end(), ids.begin(), ids.end());
    ASSERT_EQ(catalogue->tokens("ann", "a").value(), expected) << "round " << round;
    ASSERT_EQ(catalogue->find("ann", "a")->tokens, std::ssize(expected));
  }
  const auto beyond = catalogue->set_tokens("ann", "a", std::ssize(expected) + 1, {});
  ASSERT_FALSE(beyond.has_value());
  EXPECT_EQ(beyond.error().code(), StatusCode::kInvalidArgument);
}

TEST_F(CatalogueTest, OwnersSeeTheirOwnAndFillTheirOwn) {
  const auto catalogue = open("one", 2);
  ASSERT_TRUE(catalogue->add({.id = "a", .owner = "ann"}));
  ASSERT_TRUE(catalogue->add({.id = "b", .owner = "ann"}));
  const Status full = catalogue->add({.id = "c", .owner = "ann"});
  ASSERT_FALSE(full.has_value());
  EXPECT_EQ(full.error().code(), StatusCode::kResourceExhausted);
  ASSERT_TRUE(catalogue->add({.id = "a", .owner = "bob"}));  // a name of Bob's
  EXPECT_EQ(catalogue->add({.id = "a", .owner = "bob"}).error().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(catalogue->find("bob", "b").error().code(), StatusCode::kNotFound);
  EXPECT_EQ(catalogue->remove("bob", "b").error().code(), StatusCode::kNotFound);
  ASSERT_TRUE(catalogue->remove("bob", "a"));
  EXPECT_TRUE(catalogue->find("ann", "a").has_value());
  const auto listed = catalogue->list("ann", 10).value();
  ASSERT_EQ(listed.size(), 2U);
  EXPECT_EQ(listed[0].id, "b");
  EXPECT_EQ(catalogue->count().value(), 2);
}

TEST_F(CatalogueTest, AForkHasABeginningOfItsParentAndGoesItsOwnWay) {
  const auto catalogue = open();
  const Ids text = ids_from(0, Catalogue::kPieceTokens + 10);
  ASSERT_TRUE(catalogue->add({.id = "a", .owner = "ann"}));
  ASSERT_TRUE(catalogue->set_tokens("ann", "a", 0, text));
  const std::int64_t length = static_cast<std::int64_t>(Catalogue::kPieceTokens) + 4;
  ASSERT_TRUE(catalogue->add_fork({.id = "b", .owner = "ann", .parent = "a"}, length));
  ASSERT_TRUE(catalogue->set_tokens("ann", "b", length, ids_from(500, 2)));
  Ids expected(text.begin(), text.begin() + length);
  expected.insert(expected.end(), {500, 501});
  EXPECT_EQ(catalogue->tokens("ann", "b").value(), expected);
  EXPECT_EQ(catalogue->tokens("ann", "a").value(), text);
  EXPECT_EQ(catalogue->find("ann", "b")->parent, "a");
  EXPECT_EQ(catalogue->add_fork({.id = "c", .owner = "bob", .parent = "a"}, 1).error().code(),
            StatusCode::kNotFound);
  EXPECT_EQ(catalogue->add_fork({.id = "c", .owner = "ann", .parent = "a"}, 5000).error().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(catalogue->find("ann", "c").error().code(), StatusCode::kNotFound);
}

TEST_F(CatalogueTest, SessionsOfAnotherModelAreNotShownAndStay) {
  ASSERT_TRUE(open("one")->add({.id = "a", .owner = "ann"}));
  {
    const auto other = open("two");
    EXPECT_EQ(other->find("ann", "a").error().code(), StatusCode::kNotFound);
    EXPECT_EQ(other->count().value(), 0);
    EXPECT_TRUE(other->add({.id = "a", .owner = "ann"}));
    EXPECT_TRUE(other->remove("ann", "a"));
  }
  EXPECT_TRUE(open("one")->find("ann", "a").has_value());
}

TEST_F(CatalogueTest, WhatIsNoCatalogueIsOneLineAndStays) {
  ASSERT_TRUE(open()->add({.id = "a", .owner = "ann"}));
  const auto size = std::filesystem::file_size(file());
  const auto last_page = static_cast<std::size_t>(size) - 4096;
  for (const auto& [at, byte] :
       {std::pair{std::size_t{0}, 'x'}, std::pair{std::size_t{100}, '\xff'},
        std::pair{last_page, '\xff'}}) {
    std::filesystem::copy_file(file(), file() + ".kept",
                               std::filesystem::copy_options::overwrite_existing);
    std::fstream torn(file(), std::ios::in | std::ios::out | std::ios::binary);
    torn.seekp(static_cast<std::streamoff>(at));
    for (std::size_t i = 0; i < 64; ++i) torn.put(byte);
    torn.close();
    const auto opened = Catalogue::open(folder_, "one", 10);
    ASSERT_FALSE(opened.has_value()) << at;
    EXPECT_EQ(opened.error().code(), StatusCode::kDataLoss) << opened.error().message();
    EXPECT_THAT(opened.error().message(), testing::StartsWith(file() + ": "));
    EXPECT_THAT(opened.error().message(), HasSubstr("move " + file() + "* away"));
    EXPECT_EQ(opened.error().message().find('\n'), std::string::npos);
    EXPECT_EQ(std::filesystem::file_size(file()), size);
    std::filesystem::rename(file() + ".kept", file());
  }
  EXPECT_TRUE(open()->find("ann", "a").has_value());
}

// Clients read what is damaged, the operator where, and once.
TEST_F(CatalogueTest, DamageWhileItIsOpenIsToldToClientsAndOperator) {
  {
    const auto catalogue = open();
    ASSERT_TRUE(catalogue->add({.id = "a", .owner = "ann"}));
    // More than SQLite holds in memory.
    ASSERT_TRUE(catalogue->set_tokens("ann", "a", 0, ids_from(0, 2'000'000)));
  }
  std::vector<std::string> reported;
  const auto catalogue = Catalogue::open(folder_, "one", 10, [&](const Error& why) {
                           reported.push_back(why.message());
                         }).value();
  EXPECT_FALSE(catalogue->is_damaged());
  test::overwrite_pages(file());
  for (int time = 0; time < 2; ++time) {
    const auto tokens = catalogue->tokens("ann", "a");
    ASSERT_FALSE(tokens.has_value());
    EXPECT_EQ(tokens.error().code(), StatusCode::kDataLoss);
    EXPECT_EQ(tokens.error().message(), "the catalogue of sessions is damaged");
    EXPECT_TRUE(catalogue->is_damaged());
  }
  ASSERT_EQ(reported.size(), 1U);
  EXPECT_THAT(reported[0], testing::StartsWith(file() + ": "));
}

TEST_F(CatalogueTest, OneProcessHasTheFolder) {
  const auto catalogue = open();
  ASSERT_TRUE(catalogue->add({.id = "a", .owner = "ann"}));
  const auto second = Catalogue::open(folder_, "one", 10);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), StatusCode::kUnavailable);
  EXPECT_THAT(second.error().message(), HasSubstr("another process"));
}

// A disk that takes no more is played by a limit of the process's files.
TEST_F(CatalogueTest, AFullDiskIsOneLineAndWhatWasThereStays) {
  ASSERT_TRUE(open()->add({.id = "a", .owner = "ann"}));
  ASSERT_TRUE(open()->set_tokens("ann", "a", 0, ids_from(0, 100)));
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    std::string reported;
    const auto catalogue =
        Catalogue::open(folder_, "one", 10, [&](const Error& why) { reported = why.message(); });
    const rlimit none = {.rlim_cur = 1 << 16, .rlim_max = 1 << 16};
    if (!catalogue || ::setrlimit(RLIMIT_FSIZE, &none) != 0) ::_exit(2);
    Status kept;
    std::int64_t length = 100;
    for (; kept && length < 1'000'000; length += 5000) {
      kept = (*catalogue)
                 ->set_tokens("ann", "a", length, ids_from(static_cast<TokenId>(length), 5000));
    }
    if (kept || kept.error().code() != StatusCode::kUnavailable) ::_exit(3);
    if (kept.error().message() != "the catalogue of sessions cannot be read or written") ::_exit(4);
    if (reported.find("sessions.sqlite") == std::string::npos) ::_exit(6);
    // It goes on with what it has.
    const auto tokens = (*catalogue)->tokens("ann", "a");
    ::_exit(tokens && std::ssize(*tokens) == length - 5000 ? 0 : 5);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
  const Ids tokens = open()->tokens("ann", "a").value();
  EXPECT_GE(tokens.size(), 100U);
  EXPECT_EQ(tokens, ids_from(0, tokens.size()));
}

// Tells `told` the length of the session after each call that has returned, for ever.
[[noreturn]] void add_for_ever(const std::string& folder, int told) {
  const auto catalogue = Catalogue::open(folder, "one", 10);
  if (!catalogue) ::_exit(2);
  auto length = (*catalogue)->find("ann", "a")->tokens;
  for (;;) {
    const auto count = static_cast<std::size_t>(length % 7 + 1);
    if (!(*catalogue)
             ->set_tokens("ann", "a", length, ids_from(static_cast<TokenId>(length), count))) {
      ::_exit(3);
    }
    length += static_cast<std::int64_t>(count);
    if (::write(told, &length, sizeof(length)) != sizeof(length)) ::_exit(4);
  }
}

TEST_F(CatalogueTest, NothingThatWasAcknowledgedIsLostWhenItsProcessIsKilled) {
  ASSERT_TRUE(open()->add({.id = "a", .owner = "ann"}));
  std::mt19937 random(11);
  std::int64_t told = 0;
  for (int kill = 0; kill < 40; ++kill) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) add_for_ever(folder_, ends[1]);
    ::close(ends[1]);
    std::int64_t length = 0;
    ASSERT_EQ(::read(ends[0], &length, sizeof(length)), static_cast<ssize_t>(sizeof(length)));
    ::usleep(random() % 5000);
    ::kill(child, SIGKILL);
    do {
      told = length;
    } while (::read(ends[0], &length, sizeof(length)) == static_cast<ssize_t>(sizeof(length)));
    ::close(ends[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "exit code " << WEXITSTATUS(status);
    const Ids tokens = open()->tokens("ann", "a").value();
    ASSERT_GE(std::ssize(tokens), told);
    ASSERT_EQ(tokens, ids_from(0, tokens.size()));
  }
  EXPECT_GT(told, 100);
}

}  // namespace
}  // namespace kakeya::service
