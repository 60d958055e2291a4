// A stream of a card in the context that the whole process shares, and what went wrong there.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "backend/cuda/libcuda.h"
#include "base/memory_space.h"
#include "kakeya/status.h"

namespace kakeya::cuda {

// Thread-safe: whoever calls the library holds a Turn.
class CardStream {
 public:
  // `name`, "cuda:0", begins the lines of errors. Errors: kUnavailable.
  static Result<std::unique_ptr<CardStream>> open(const libcuda::Table& table,
                                                  int device,
                                                  std::string name);
  ~CardStream();
  CardStream(const CardStream&) = delete;
  CardStream& operator=(const CardStream&) = delete;

  const std::string& name() const { return name_; }
  const libcuda::Table& table() const { return table_; }
  // For whoever gives it work, with a turn.
  libcuda::Stream* stream() {
    has_work_ = true;
    return stream_;
  }

  // While it lives the calling thread has the card's context, and no other one has a turn. The
  // members below are for its holder.
  class Turn {
   public:
    explicit Turn(CardStream& stream);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    CardStream& stream_;
    const std::lock_guard<std::mutex> lock_;
    bool has_context_ = false;
  };

  // The error that ended the card; ok while it works. Nothing may be asked of the card after an
  // error.
  const Status& failure() const { return failure_; }
  bool works() const { return failure_.has_value(); }
  // Remembers what went wrong, unless `code` is that of success. Returns whether the card works.
  bool check(std::string_view what, libcuda::Code code);
  // Waits for everything, if something was begun since it last did. Returns the same.
  bool wait();
  // True if all that was begun has ended. None of it runs on either where the card does not work.
  bool is_done();
  // Named if waiting fails; a string that stays.
  void set_last_kernel(std::string_view kernel) { last_kernel_ = kernel; }

 private:
  CardStream(const libcuda::Table& table, int device, std::string name)
      : table_(table), device_(device), name_(std::move(name)) {}

  std::string what_runs() const;

  const libcuda::Table table_;
  const int device_;
  const std::string name_;
  libcuda::Context* context_ = nullptr;
  libcuda::Stream* stream_ = nullptr;
  std::mutex mutex_;  // of what follows
  Status failure_;
  bool has_work_ = false;
  std::string_view last_kernel_;
};

// The card's memory. Copies come after all launches before them, and before those that follow.
class CardSpace final : public MemorySpace {
 public:
  // `stream` must outlive it.
  explicit CardSpace(CardStream& stream) : stream_(stream) {}

  std::string_view name() const override { return stream_.name(); }
  struct Amount {
    std::uint64_t all;
    std::uint64_t free;  // for every process
  };
  // None if the library does not say.
  std::optional<Amount> amount() const;
  std::optional<std::uint64_t> free_bytes() const override;
  Status status() const override;
  std::byte* allocate(std::uint64_t bytes) override;
  // Waits for kernels that may still use it.
  void release(std::byte* memory, std::uint64_t bytes) override;
  void upload(std::span<const std::byte> from, DevicePointer<std::byte> to) override;
  // Begins an upload without waiting: `from` must stay as it is until somebody waits.
  void begin_upload(std::span<const std::byte> from, DevicePointer<std::byte> to);
  void download(DevicePointer<const std::byte> from, std::span<std::byte> to) override;
  void copy(DevicePointer<const std::byte> from,
            DevicePointer<std::byte> to,
            std::uint64_t bytes) override;
  void fill(DevicePointer<std::byte> to, std::byte value, std::uint64_t bytes) override;
  // Uploads, copies, fills and releases so far.
  std::uint64_t num_changes() const { return num_changes_; }

 private:
  // For the holder of a turn. Returns whether something was begun.
  bool copy_to_card(std::span<const std::byte> from, DevicePointer<std::byte> to);

  CardStream& stream_;
  std::atomic<std::uint64_t> num_changes_ = 0;
};

}  // namespace kakeya::cuda
