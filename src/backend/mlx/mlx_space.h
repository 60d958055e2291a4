// Memory in which addresses are names: of arrays that MLX has computed, or will when they are asked
// for, or of bytes that lie in pages of the host, where nothing newer has been written.
#pragma once

#include <mlx/mlx.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/mlx/mlx_backend.h"
#include "backend/mlx/mlx_row_operations.h"
#include "backend/rows.h"
#include "base/memory_space.h"
#include "kakeya/status.h"

namespace kakeya::mlx {

namespace mx = ::mlx::core;

// Lengths, as MLX takes them.
inline int to_int(std::int64_t value) {
  return static_cast<int>(value);
}

// The number that MLX gives for a device under this name, if there is one.
std::optional<std::uint64_t> device_number(mx::Device device, const std::string& name);

// Thread-safe; whoever records operations holds mutex() meanwhile, for MLX's stream is not. Memory
// of the host's beside its own is read and written at once, which is what tests of operations use.
class MlxSpace final : public MemorySpace {
 public:
  // Creates the memory of a device of MLX's. Errors: kResourceExhausted if the system does not give
  // the addresses.
  static Result<std::unique_ptr<MlxSpace>> create(mx::Device device, RowOperationsKind operations);
  ~MlxSpace() override;

  std::string_view name() const override { return "mlx"; }
  // The bytes that a GPU may use without paging, less those that arrays have; nothing for other
  // devices.
  std::optional<std::uint64_t> free_bytes() const override;
  std::byte* allocate(std::uint64_t bytes) override;
  void release(std::byte* memory, std::uint64_t bytes) override;
  void upload(std::span<const std::byte> from, DevicePointer<std::byte> to) override;
  void download(DevicePointer<const std::byte> from, std::span<std::byte> to) override;
  void copy(DevicePointer<const std::byte> from,
            DevicePointer<std::byte> to,
            std::uint64_t bytes) override;
  void fill(DevicePointer<std::byte> to, std::byte value, std::uint64_t bytes) override;

  std::recursive_mutex& mutex() { return mutex_; }
  mx::Stream stream() const { return stream_; }
  RowOperationsKind operations() const { return operations_; }
  Counters& counters() { return counters_; }

  // Reads the bytes at `address` as an array of this shape and type.
  mx::array read(const void* address, const mx::Shape& shape, mx::Dtype dtype);
  // Reads the bytes at `address` in the shape in which they were written, if they were.
  mx::array read_as_written(const void* address, mx::Shape shape, mx::Dtype dtype);
  // Names an array: what was at its addresses before is gone.
  void write(void* address, mx::array value);
  // Names an array of rows that later passes read: it is run with what is asked for next.
  void write_kept(void* address, const mx::array& value);
  // Runs what these rows name, and what write_kept() was given, all at once. Forgets what else was
  // written and not run.
  void run_rows(std::span<const ConstRows> rows);

  // For host code at these addresses: everything is in the pages,
  void to_pages(const void* address, std::uint64_t bytes);
  // or will be, because that code writes all or some of it there.
  void from_pages(void* address, std::uint64_t bytes);

 private:
  struct Named {
    std::uint64_t bytes;
    mx::array value;
    bool in_pages;  // the pages hold the same
  };
  using Names = std::map<std::uintptr_t, Named>;

  MlxSpace(std::byte* base, mx::Device device, RowOperationsKind operations);
  bool is_own(const void* address) const;
  // The first name that reaches behind `begin`.
  Names::iterator first_behind(std::uintptr_t begin);
  // The part at `address` of a name that holds all of it, flat; null if there is none of `dtype`.
  std::unique_ptr<mx::array> part(const void* address, std::uint64_t bytes, mx::Dtype dtype);
  // The part [begin, end) of a name that will be gone; null if its bytes are in the pages.
  std::unique_ptr<mx::array> cut(Names::value_type& name, std::uintptr_t begin, std::uintptr_t end);
  // Computed, in one piece.
  const std::byte* bytes_of(Named& named);
  void run(std::vector<mx::array> wanted);

  std::byte* const base_;
  const mx::Stream stream_;
  const RowOperationsKind operations_;
  std::recursive_mutex mutex_;                     // of what follows
  std::map<std::uint64_t, std::uint64_t> pieces_;  // what is allocated: place to bytes, whole pages
  Names names_;                                    // by first address; they do not overlap
  std::vector<std::uintptr_t> kept_;               // names that were not run yet
  Counters counters_;
};

}  // namespace kakeya::mlx
