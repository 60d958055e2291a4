// The tests' main(): googletest's, with the backends that stand for devices.
#include <gmock/gmock.h>

#include "backend/emulated/emulated_backends.h"

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  kakeya::add_emulated_backends();
  return RUN_ALL_TESTS();
}
