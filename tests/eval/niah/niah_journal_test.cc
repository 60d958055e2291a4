// The journal of a run: what it has is taken over, what belongs to another run is not, and it
// survives an end at any byte.
#include "eval/niah/niah_journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "formats/scratch_files.h"
#include "model/test_model.h"

namespace kakeya::eval {
namespace {

using testing::HasSubstr;

const NeedlePlace kPlace{512, 25, 3};
const Report kRun = {{"seed", 42}, {"compute", "fast"}};

NiahReply reply_of(const std::string& mode) {
  return {.mode = mode,
          .sha256 = std::string(64, 'a'),
          .found = 1,
          .seconds = 0.25,
          .evicted_rows = 5,
          .restored_rows = 4,
          .codes_matter = true};
}

class NiahJournalTest : public testing::Test {
 protected:
  NiahJournal open() { return NiahJournal::open(path_, kRun).value(); }
  std::string read() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }
  std::string refusal(const Report& run = kRun) const {
    const auto journal = NiahJournal::open(path_, run);
    return journal ? "opened" : journal.error().message();
  }

  ScratchFolder folder_;
  std::string path_ = folder_.path("run.jsonl");
};

TEST_F(NiahJournalTest, GivesBackWhatWasAdded) {
  {
    NiahJournal journal = open();
    ASSERT_OK(journal.begin(kPlace, "exact"));
    ASSERT_OK(journal.add(kPlace, "hash", reply_of("exact")));
    ASSERT_OK(journal.add(kPlace, "hash", {.mode = "drop", .seconds = 1.0, .error = "no memory"}));
  }
  const NiahJournal journal = open();
  EXPECT_EQ(journal.replies(), 2);
  const NiahReply* reply = journal.find(kPlace, "exact", "hash").value();
  ASSERT_NE(reply, nullptr);
  EXPECT_EQ(niah_reply_json(*reply), niah_reply_json(reply_of("exact")));
  EXPECT_EQ(journal.find(kPlace, "drop", "hash").value()->error, "no memory");
  EXPECT_EQ(journal.find({512, 25, 4}, "exact", "hash").value(), nullptr);
  EXPECT_EQ(journal.find(kPlace, "int8", "hash").value(), nullptr);
  EXPECT_THAT(journal.find(kPlace, "exact", "other").error().message(),
              HasSubstr("a reply to another prompt of length 512, depth 25, number 3"));
}

TEST_F(NiahJournalTest, GoesOnAfterAnEndAtAnyByte) {
  {
    NiahJournal journal = open();
    ASSERT_OK(journal.add(kPlace, "hash", reply_of("exact")));
    ASSERT_OK(journal.add(kPlace, "hash", reply_of("drop")));
  }
  const std::string whole = read();
  const std::size_t first_line = whole.find('\n') + 1;
  const std::size_t second_line = whole.find('\n', first_line) + 1;
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    write(whole.substr(0, size));
    {
      NiahJournal journal = open();
      const std::int64_t complete = size >= whole.size() ? 2 : size >= second_line ? 1 : 0;
      ASSERT_EQ(journal.replies(), complete) << size;
      for (const char* mode : {"exact", "drop"}) {
        if (journal.find(kPlace, mode, "hash").value() != nullptr) continue;
        ASSERT_OK(journal.add(kPlace, "hash", reply_of(mode)));
      }
    }
    ASSERT_EQ(read(), whole) << size;
  }
}

TEST_F(NiahJournalTest, CountsRepliesThatWereBegunAndNeverCame) {
  for (int i = 0; i < 2; ++i) {
    NiahJournal journal = open();
    ASSERT_OK(journal.begin(kPlace, "exact"));
  }
  const NiahJournal journal = open();
  EXPECT_EQ(journal.attempts(kPlace, "exact"), 2);
  EXPECT_EQ(journal.attempts(kPlace, "drop"), 0);
}

TEST_F(NiahJournalTest, RefusesOtherRunsAndOtherFilesWithOneLine) {
  { NiahJournal journal = open(); }
  EXPECT_EQ(refusal(), "opened");
  EXPECT_THAT(refusal({{"seed", 43}, {"compute", "fast"}}),
              HasSubstr("is of another run; it differs in seed: 42 instead of 43"));
  EXPECT_THAT(refusal({{"seed", 42}, {"haystack", "prose"}}),
              HasSubstr("differs in haystack, which is not there"));
  const std::string header = read();
  for (const std::string line : {"", "{}", "[1]", "{\"length\": 1}",
                                 "{\"length\": 1, \"depth\": 2, "
                                 "\"index\": 0, \"reply\": {\"mode\": 4}}",
                                 "\xff"}) {
    write(header + line + "\n");
    EXPECT_THAT(refusal(), HasSubstr("run.jsonl:2: expected a")) << line;
    EXPECT_EQ(read(), header + line + "\n") << "a file that is refused stays as it is";
  }
  for (const std::string& text : {std::string("hello\n"), std::string("{}\n"), "[[" + header}) {
    write(text);
    EXPECT_THAT(refusal(), HasSubstr("expected a journal of eval niah")) << text;
  }
  path_ = folder_.path("none/run.jsonl");
  EXPECT_THAT(refusal(), HasSubstr("expected a file that can be written"));
}

}  // namespace
}  // namespace kakeya::eval
