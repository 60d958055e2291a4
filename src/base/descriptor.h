// A file's or a folder's number, which is closed.
#pragma once

#include <unistd.h>

#include <utility>

namespace kakeya {

// -1: none. Move-only.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) reset(std::exchange(other.number_, -1));
    return *this;
  }
  void reset(int number = -1) {
    if (number_ >= 0) ::close(number_);
    number_ = number;
  }
  int get() const { return number_; }

 private:
  int number_;
};

}  // namespace kakeya
