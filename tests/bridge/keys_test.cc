// Keys, the files that hold them, and signatures.
#include "keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "bridge_fixture.h"
#include "formats/scratch_files.h"

namespace kakeya::bridge {
namespace {

using testing::HasSubstr;

// RFC 8032, section 7.1, test 2.
TEST(BridgeKeys, SignAsTheStandardDoes) {
  const ScratchFolder folder;
  const std::string path =
      folder.write("key", "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb\n");
  std::filesystem::permissions(path, std::filesystem::perms(0600));
  const SigningKey key = SigningKey::load(path).value();
  EXPECT_EQ(to_hex(key.public_key()),
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
  EXPECT_EQ(to_hex(key.sign("\x72").value()),
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
            "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00");
}

TEST(BridgeKeys, KnowTheirOwnSignaturesAndNoOthers) {
  const SigningKey key = SigningKey::make().value();
  const Signature signature = key.sign("text").value();
  EXPECT_TRUE(is_signed_by(key.public_key(), "text", signature));
  EXPECT_FALSE(is_signed_by(key.public_key(), "texT", signature));
  EXPECT_FALSE(is_signed_by(SigningKey::make()->public_key(), "text", signature));
  for (std::size_t i = 0; i < signature.size(); ++i) {
    Signature changed = signature;
    changed[i] ^= 1;
    EXPECT_FALSE(is_signed_by(key.public_key(), "text", changed)) << i;
  }
}

TEST(BridgeKeys, AreKeptForTheirUserAlone) {
  const ScratchFolder folder;
  const SigningKey key = SigningKey::make().value();
  const std::string path = folder.path("key");
  ASSERT_TRUE(key.save(path));
  EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms(0600));
  EXPECT_EQ(SigningKey::load(path)->public_key(), key.public_key());
  EXPECT_THAT(key.save(path).error().message(), HasSubstr("File exists"));
  std::filesystem::permissions(path, std::filesystem::perms(0640));
  EXPECT_THAT(SigningKey::load(path).error().message(), HasSubstr("expected mode 0600, got 0640"));
}

TEST(BridgeKeys, AreRefusedWhereTheyAreNone) {
  const ScratchFolder folder;
  EXPECT_EQ(SigningKey::load(folder.path("none")).error().code(), StatusCode::kNotFound);
  const std::string target = folder.write("short", "abcd\n");
  std::filesystem::permissions(target, std::filesystem::perms(0600));
  const std::string message = SigningKey::load(target).error().message();
  EXPECT_THAT(message, HasSubstr("expected a line of 64"));
  EXPECT_THAT(message, testing::Not(HasSubstr("abcd")));  // it may have been a key
  std::filesystem::create_symlink(target, folder.path("link"));
  EXPECT_EQ(SigningKey::load(folder.path("link")).error().code(), StatusCode::kFailedPrecondition);
}

// Whoever can write there says whose checks run.
TEST(BridgePeers, AreNotTakenFromAFileThatOthersMayWrite) {
  const ScratchFolder folder;
  const std::string line = Peers::line("one", SigningKey::make()->public_key()).value();
  const std::string path = folder.write("peers", line);
  for (const unsigned mode : {0620U, 0602U, 0666U}) {
    std::filesystem::permissions(path, std::filesystem::perms(mode));
    const auto peers = Peers::load(path);
    ASSERT_FALSE(peers) << mode;
    EXPECT_EQ(peers.error().code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(peers.error().message(), HasSubstr("chmod go-w"));
  }
  std::filesystem::permissions(path, std::filesystem::perms(0644));  // they are public
  EXPECT_TRUE(Peers::load(path));
}

TEST(BridgePeers, AreLinesOfNamesAndKeys) {
  const SigningKey one = SigningKey::make().value();
  const SigningKey two = SigningKey::make().value();
  const std::string line = Peers::line("one", one.public_key()).value();
  const Peers peers =
      Peers::parse("# mine\n\n" + line + "\n" + Peers::line("two", two.public_key()).value(), "f")
          .value();
  EXPECT_EQ(peers.find(two.public_key())->name, "two");
  EXPECT_EQ(peers.find("one")->key, one.public_key());
  EXPECT_EQ(peers.find(SigningKey::make()->public_key()), nullptr);
  const auto problem = [](const std::string& text) {
    return Peers::parse(text, "f").error().message();
  };
  EXPECT_THAT(problem("#\n" + line + "0\n"), HasSubstr("f, line 2: expected NAME:KEY"));
  EXPECT_THAT(problem("a b:" + to_hex(one.public_key())), HasSubstr("expected NAME:KEY"));
  EXPECT_THAT(problem(line + "\n" + line), HasSubstr("the name 'one' comes twice"));
  EXPECT_THAT(problem(line + "\nother" + line.substr(3)), HasSubstr("have the same key"));
  EXPECT_THAT(problem("# none\n"), HasSubstr("there is no key"));
  EXPECT_FALSE(Peers::line("a:b", one.public_key()));
}

}  // namespace
}  // namespace kakeya::bridge
