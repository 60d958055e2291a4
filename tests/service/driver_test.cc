// The driver and its mailboxes, without sockets.
#include "service/driver.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "runtime/demo_sessions.h"

namespace kakeya::service {
namespace {

// Waits until something is in a mailbox.
class Bell {
 public:
  std::shared_ptr<Mailbox> mailbox(std::size_t most_tokens) {
    return std::make_shared<Mailbox>(most_tokens, [this] {
      const std::lock_guard lock(mutex_);
      rung_ = true;
      changed_.notify_one();
    });
  }

  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return rung_; });
    rung_ = false;
  }

  // All that comes until the end.
  Mail wait_for_end(Mailbox& mailbox) {
    Mail all;
    while (!all.end) {
      wait();
      Mail mail = mailbox.take();
      for (GeneratedToken& token : mail.tokens) all.tokens.push_back(std::move(token));
      all.end = std::move(mail.end);
    }
    return all;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool rung_ = false;
};

Request long_request() {
  return {.prompt = {2, 131, 122, 551},
          .generate = {.max_tokens = 900, .ignore_model_stop_ids = true}};
}

TEST(ServerMailbox, RefusesFurtherTokensWhenNobodyReads) {
  int woken = 0;
  Mailbox mailbox(2, [&] { ++woken; });
  EXPECT_TRUE(mailbox.put({1}));
  EXPECT_TRUE(mailbox.put({2}));
  EXPECT_FALSE(mailbox.put({3}));
  EXPECT_EQ(mailbox.take().tokens.size(), 2u);
  EXPECT_FALSE(mailbox.put({4})) << "a token was lost: the rest must not follow";
  EXPECT_TRUE(mailbox.overflowed());
  EXPECT_EQ(woken, 1);
  mailbox.end(StopReason::kCallback);
  EXPECT_EQ(woken, 2);
  EXPECT_TRUE(mailbox.take().end.has_value());
}

TEST(ServerMailbox, IsSilentOnceItIsClosed) {
  int woken = 0;
  Mailbox mailbox(2, [&] { ++woken; });
  mailbox.close();
  EXPECT_FALSE(mailbox.put({1}));
  mailbox.end(StopReason::kStopId);
  EXPECT_EQ(woken, 0);
}

TEST(ServerDriver, DeliversWhatASessionWouldGive) {
  const auto engine = test::open_engine(test::demo_options("auto"));
  Request request = long_request();
  request.generate.max_tokens = 100;
  const auto session = engine->create_session().value();
  ASSERT_TRUE(session->append(request.prompt).has_value());
  const std::vector<TokenId> expected = session->generate(request.generate).value().ids;
  const auto driver = Driver::create(engine->create_scheduler({}).value());
  Bell bell;
  const auto mailbox = bell.mailbox(1000);
  ASSERT_TRUE(driver->submit(request, mailbox).has_value());
  const Mail mail = bell.wait_for_end(*mailbox);
  std::vector<TokenId> ids;
  for (const GeneratedToken& token : mail.tokens) ids.push_back(token.id);
  EXPECT_EQ(ids, expected);
  ASSERT_TRUE(mail.end->has_value());
  EXPECT_EQ(**mail.end, StopReason::kMaxTokens);
}

TEST(ServerDriver, CancelsWhoDoesNotRead) {
  const auto engine = test::open_engine(test::demo_options("none"));
  const auto driver = Driver::create(engine->create_scheduler({}).value());
  Bell bell;
  const auto mailbox = bell.mailbox(10);
  ASSERT_TRUE(driver->submit(long_request(), mailbox).has_value());
  // Reads nothing until the end is there, which comes long before the last token.
  while (driver->statistics().waiting + driver->statistics().running > 0) std::this_thread::yield();
  EXPECT_LT(driver->statistics().tokens, 100);
  const Mail mail = bell.wait_for_end(*mailbox);
  EXPECT_EQ(mail.tokens.size(), 10u);
  EXPECT_EQ(**mail.end, StopReason::kCallback);
}

TEST(ServerDriver, RefusesAtOnceWhatTheSchedulerRefuses) {
  const auto engine = test::open_engine(test::demo_options("none"));
  const auto driver = Driver::create(engine->create_scheduler({}).value());
  Bell bell;
  const auto empty = driver->submit({}, bell.mailbox(1));
  ASSERT_FALSE(empty.has_value());
  EXPECT_EQ(empty.error().code(), StatusCode::kInvalidArgument);
}

TEST(ServerDriver, StoppingEndsEveryRequestWithAReason) {
  const auto engine = test::open_engine(test::demo_options("none"));
  const auto driver = Driver::create(engine->create_scheduler({.max_sequences = 1}).value());
  Bell first_bell;
  Bell second_bell;
  const auto first = first_bell.mailbox(1000);
  const auto second = second_bell.mailbox(1000);
  ASSERT_TRUE(driver->submit(long_request(), first).has_value());
  ASSERT_TRUE(driver->submit(long_request(), second).has_value());  // waits
  first_bell.wait();
  driver->stop();
  EXPECT_FALSE(driver->healthy());
  for (Mailbox* mailbox : {first.get(), second.get()}) {
    const Mail mail = mailbox->take();
    ASSERT_TRUE(mail.end.has_value());
    ASSERT_FALSE(mail.end->has_value());
    EXPECT_EQ(mail.end->error().code(), StatusCode::kUnavailable);
  }
  const auto late = driver->submit(long_request(), first);
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace kakeya::service
