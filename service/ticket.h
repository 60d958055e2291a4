// A connection's hold on a request that the driver has.
#pragma once

#include <memory>
#include <utility>

#include "service/driver.h"
#include "service/mailbox.h"

namespace kakeya::service {

// The request is ended when this goes, if it has not ended by then, and its mailbox is silent.
class Ticket {
 public:
  Ticket(Driver& driver, RequestId id, std::shared_ptr<Mailbox> mailbox)
      : driver_(driver), id_(id), mailbox_(std::move(mailbox)) {}
  // A closed box ends the request too. It has been cancelled by then, so that its rows do not stay
  // in the prompt cache.
  ~Ticket() {
    driver_.cancel(id_);
    mailbox_->close();
  }
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;

 private:
  Driver& driver_;
  RequestId id_;
  std::shared_ptr<Mailbox> mailbox_;
};

}  // namespace kakeya::service
