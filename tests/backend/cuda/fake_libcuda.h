// A stand-in for NVIDIA's driver library, for tests of what calls it: fake_libcuda.cc is built as
// libcuda.so.1 and runs kernels on the emulator.
#pragma once

#include <cstdint>

namespace kakeya::cuda::fake {

// The library's counts and findings, of the whole process.
struct Record {
  std::int64_t allocations = 0;  // that succeeded
  std::int64_t releases = 0;
  std::uint64_t bytes = 0;    // allocated now
  std::int64_t objects = 0;   // contexts, streams, modules and pinned memory that are there now
  std::int64_t launches = 0;  // those of graphs, too
  std::int64_t single_launches = 0;
  std::int64_t most_shared_bytes = 0;  // of a launch
  std::int64_t graphs = 0;             // that were made ready
  std::int64_t graph_launches = 0;
  std::int64_t set_nodes = 0;     // of graphs that were ready
  std::int64_t early_starts = 0;  // edges of graphs behind which a kernel starts early
  std::int64_t attributes = 0;    // that were set, but for those of the next kind
  std::int64_t carveouts = 0;     // kernels that want all the shared memory there is
  std::int64_t uploads = 0;
  std::int64_t downloads = 0;
  std::int64_t copies = 0;    // within the card, and fills
  std::int64_t pageable = 0;  // uploads and downloads that are not of pinned memory
  std::int64_t waits = 0;
  unsigned context_flags = 0;
  std::int64_t calls = 0;         // with a context
  std::int64_t misuses = 0;       // calls that a card's library would refuse, or should
  char misuse[256] = {};          // the last of them
  char kernel_failure[512] = {};  // what the emulator said
};

// The variable whose words say what is to go wrong, and what the card is, read by cuInit(), as
// "devices=0 driver=12040 capability=75 memory=1000000 fail_allocation=3 fail_launch=5
// fault_launch=7 eager=1": which allocation finds no memory, which launch is refused, and which one
// fails while it runs, counted from 1 since cuInit(); whether kernels run when they are launched.
inline constexpr const char* kSettings = "KAKEYA_FAKE_CUDA";

// The function of the library that gives its record.
inline constexpr const char* kRecordSymbol = "kakeya_fake_cuda_record";
using RecordFunction = Record* (*)();

// The shared memory of a multiprocessor.
inline constexpr std::int64_t kSharedBytes = 164 << 10;

// The beginning of a module, as of the files that nvcc makes.
inline constexpr std::uint32_t kImageMagic = 0xba55ed50U;

}  // namespace kakeya::cuda::fake
