// The order in which requests start: nobody is passed by for ever, and turns hold all the same.
#include "runtime/request_queue.h"

#include <gtest/gtest.h>

#include <thread>

namespace kakeya {
namespace {

constexpr std::chrono::milliseconds kPatience{300};

class RequestOrder : public testing::Test {
 protected:
  RequestId add(const std::string& client, int priority) {
    auto sequence = std::make_unique<Sequence>();
    sequence->request.client = client;
    sequence->request.priority = priority;
    const RequestId id = queue_.add(std::move(sequence)).value();
    queue_.take_arrived();
    return id;
  }
  // The request that starts next.
  RequestId next(bool passed_by = false) {
    EXPECT_NE(queue_.front(), nullptr);
    const std::unique_ptr<Sequence> sequence = queue_.pop_front();
    EXPECT_EQ(sequence->passed_by, passed_by);
    const RequestId id = sequence->id;
    queue_.remove(id, true);
    return id;
  }
  static void wait() { std::this_thread::sleep_for(kPatience * 5 / 4); }

  RequestQueue queue_{1000, kPatience};
};

TEST_F(RequestOrder, NobodyIsPassedByForEver) {
  std::vector<RequestId> low;
  std::vector<RequestId> high;
  for (int i = 0; i < 2; ++i) low.push_back(add("ann", -5));
  const RequestId lowest = add("cid", -9);
  for (int i = 0; i < 9; ++i) high.push_back(add("bob", 1000));
  EXPECT_EQ(next(), high[0]);
  EXPECT_EQ(next(), high[1]);
  wait();
  // The one that nothing of has started for longest; then the others, one at a time.
  EXPECT_EQ(next(true), low[0]);
  EXPECT_EQ(next(), high[2]);
  wait();
  EXPECT_EQ(next(true), lowest);
  EXPECT_EQ(next(), high[3]);
  wait();
  EXPECT_EQ(next(true), low[1]);
  EXPECT_EQ(next(), high[4]);
  wait();
  EXPECT_EQ(next(), high[5]) << "nobody else waits";
}

TEST_F(RequestOrder, TurnsHoldAmongThoseThatWaitLong) {
  std::vector<RequestId> many;
  for (int i = 0; i < 5; ++i) many.push_back(add("ann", 0));
  EXPECT_EQ(next(), many[0]);
  wait();
  const RequestId one = add("bob", 0);
  EXPECT_EQ(next(), many[1]);
  EXPECT_EQ(next(), one) << "not behind all of a client that has waited longer";
}

TEST_F(RequestOrder, WhoIsPutBackWaitsAgain) {
  add("ann", -1);
  add("bob", 0);
  next();
  EXPECT_NE(queue_.front(), nullptr);
  queue_.put_back(queue_.pop_front());
  EXPECT_EQ(queue_.front()->request.client, "ann");
  EXPECT_EQ(queue_.take_all().size(), 1U);
  EXPECT_EQ(queue_.front(), nullptr);
}

}  // namespace
}  // namespace kakeya
