// A safetensors file from anybody: no input crashes, every tensor of an accepted file lies inside
// it (each byte of a floating point tensor is read) and is found by its name.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "formats/safetensors.h"
#include "memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const kakeya::test::MemoryFile memory(data, size);
  const auto file = kakeya::SafetensorsFile::open(memory.path());
  if (!file) {
    KAKEYA_CHECK(file.error().message().find('\n') == std::string::npos);
    return 0;
  }
  for (const kakeya::TensorView& tensor : file->tensors()) {
    (void)kakeya::check_finite(tensor);
    (void)kakeya::to_f32(tensor);
    KAKEYA_CHECK(file->find(tensor.name) == &tensor);
  }
  return 0;
}
