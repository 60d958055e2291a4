// A safetensors file from anybody: no input crashes, every tensor of an accepted file lies inside
// it (each byte of a floating point tensor is read) and is found by its name.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "formats/safetensors.h"

namespace {

// A file in memory that can be opened by path.
class MemoryFile {
 public:
  MemoryFile(const std::uint8_t* data, std::size_t size)
      : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    KAKEYA_CHECK(fd_ >= 0 && ::write(fd_, data, size) == static_cast<ssize_t>(size));
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(fd_); }

  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const MemoryFile memory(data, size);
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
