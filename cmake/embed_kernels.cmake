# Writes OUTPUT, a source that holds the file INPUT: the kernels for NVIDIA cards, for drivers that know CUDA of the
# version DRIVER. Runs when they change (cmake -P).
cmake_minimum_required(VERSION 3.25)
file(READ "${INPUT}" bytes HEX)
string(REGEX REPLACE "(................................................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE "${OUTPUT}" "// Made by cmake/embed_kernels.cmake.
#include \"backend/cuda/device_image.h\"

namespace kakeya::cuda {
namespace {

alignas(64) constexpr unsigned char kImage[] = {
${bytes}};

}  // namespace

DeviceImage device_image() {
  return {std::as_bytes(std::span(kImage)), ${DRIVER}};
}

}  // namespace kakeya::cuda
")
