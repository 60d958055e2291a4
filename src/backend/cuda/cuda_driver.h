// The device as a card of NVIDIA's, through the driver library of the machine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backend/cuda/device_image.h"
#include "backend/cuda/driver.h"
#include "kakeya/status.h"

namespace kakeya::cuda {

struct CardOptions {
  int device = 0;  // of those that the driver shows to the process
  // For tests.
  std::string library = "libcuda.so.1";  // as dlopen() takes it
  DeviceImage image = device_image();
};

struct Card {
  std::string name;
  int capability_major = 0;
  int capability_minor = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t free_bytes = 0;
};

// Launches, copies and releases take effect in the order of the calls, on one stream of the card.
// A launch that the library refuses is the error of launch() and of nothing else. After any other
// failure the card is lost: nothing runs any more, download() gives NaN, and every later launch()
// and synchronize() has the same line.
// Errors: kUnimplemented in a build without device code; kFailedPrecondition without a driver or a
// card, or if they are too old; kInvalidArgument for a card that there is not; kUnavailable if the
// card does not work.
Result<std::unique_ptr<Driver>> create_cuda_driver(const CardOptions& options = {});

// The properties of the card, if a driver can be created on it. Errors: those of
// create_cuda_driver().
Result<Card> examine_card(const CardOptions& options = {});

}  // namespace kakeya::cuda
