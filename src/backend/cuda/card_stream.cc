#include "backend/cuda/card_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/status.h"

namespace kakeya::cuda {
namespace {

libcuda::Address card_address(const std::byte* memory) {
  return reinterpret_cast<std::uintptr_t>(memory);
}

}  // namespace

Result<std::unique_ptr<CardStream>> CardStream::open(const libcuda::Table& table,
                                                     int device,
                                                     std::string name) {
  std::unique_ptr<CardStream> made(new CardStream(table, device, std::move(name)));
  const auto refused = [&](libcuda::Code code) {
    return error(StatusCode::kUnavailable, "{} gives no context: {}", made->name_,
                 libcuda::describe(table, code));
  };
  // Who waits spins, and knows of the end within microseconds instead of tens of them. A context
  // that is in use already stays as it is, and serves as well.
  static_cast<void>(table.set_context_flags(device, libcuda::kSpins));
  libcuda::Code code = table.retain_context(&made->context_, device);
  if (code != libcuda::kSuccess) {
    made->context_ = nullptr;
    return refused(code);
  }
  const Turn turn(*made);
  code = table.create_stream(&made->stream_, libcuda::kNonBlocking);
  if (code != libcuda::kSuccess) {
    made->stream_ = nullptr;
    return refused(code);
  }
  return made;
}

// Nobody is left to be told of errors.
CardStream::~CardStream() {
  if (context_ == nullptr) return;
  if (stream_ != nullptr) {
    const Turn turn(*this);
    table_.destroy_stream(stream_);
  }
  table_.release_context(device_);
}

CardStream::Turn::Turn(CardStream& stream) : stream_(stream), lock_(stream.mutex_) {
  const libcuda::Code code = stream_.table_.push_context(stream_.context_);
  has_context_ = code == libcuda::kSuccess;
  stream_.check("context", code);
}

// Gives the thread back the context that it had before.
CardStream::Turn::~Turn() {
  libcuda::Context* popped = nullptr;
  if (has_context_) stream_.table_.pop_context(&popped);
}

bool CardStream::check(std::string_view what, libcuda::Code code) {
  if (code != libcuda::kSuccess && works()) {
    failure_ =
        error(StatusCode::kUnavailable, "{}, {}: {}", name_, what, libcuda::describe(table_, code));
  }
  return works();
}

bool CardStream::wait() {
  if (!works()) return false;
  if (!has_work_) return true;
  const libcuda::Code code = table_.synchronize(stream_);
  if (code == libcuda::kSuccess) {
    has_work_ = false;
    return true;
  }
  return check(what_runs(), code);
}

bool CardStream::is_done() {
  if (!works() || !has_work_) return true;
  const libcuda::Code code = table_.query(stream_);
  if (code == libcuda::kNotReady) return false;
  if (check(what_runs(), code)) has_work_ = false;
  return true;
}

// The library does not say which one it was that failed.
std::string CardStream::what_runs() const {
  if (last_kernel_.empty()) return "waiting";
  return fmt::format("kernel {} or one before it (CUDA_LAUNCH_BLOCKING=1 tells which)",
                     last_kernel_);
}

std::optional<CardSpace::Amount> CardSpace::amount() const {
  const CardStream::Turn turn(stream_);
  std::size_t free = 0;
  std::size_t all = 0;
  if (stream_.table().memory_info(&free, &all) != libcuda::kSuccess) return std::nullopt;
  return Amount{all, free};
}

std::optional<std::uint64_t> CardSpace::free_bytes() const {
  const auto known = amount();
  return known ? std::optional(known->free) : std::nullopt;
}

Status CardSpace::status() const {
  const CardStream::Turn turn(stream_);
  return stream_.failure();
}

std::byte* CardSpace::allocate(std::uint64_t bytes) {
  const CardStream::Turn turn(stream_);
  if (!stream_.works()) return nullptr;
  libcuda::Address address = 0;
  const libcuda::Code code = stream_.table().allocate(&address, bytes);
  if (code == libcuda::kOutOfMemory || !stream_.check("allocation", code)) return nullptr;
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address));
}

// Releases memory, also of a card that is lost.
void CardSpace::release(std::byte* memory, std::uint64_t /*bytes*/) {
  const CardStream::Turn turn(stream_);
  ++num_changes_;
  stream_.wait();
  const libcuda::Code code = stream_.table().release(card_address(memory));
  if (stream_.works()) stream_.check("release", code);
}

// Waits, since the library may read `from` until the copy is done.
void CardSpace::upload(std::span<const std::byte> from, DevicePointer<std::byte> to) {
  const CardStream::Turn turn(stream_);
  if (copy_to_card(from, to)) stream_.wait();
}

void CardSpace::begin_upload(std::span<const std::byte> from, DevicePointer<std::byte> to) {
  const CardStream::Turn turn(stream_);
  copy_to_card(from, to);
}

bool CardSpace::copy_to_card(std::span<const std::byte> from, DevicePointer<std::byte> to) {
  if (from.empty() || !stream_.works()) return false;
  ++num_changes_;
  const libcuda::Code code = stream_.table().upload(card_address(to.address()), from.data(),
                                                    from.size(), stream_.stream());
  return stream_.check("upload", code);
}

void CardSpace::download(DevicePointer<const std::byte> from, std::span<std::byte> to) {
  if (to.empty()) return;
  const CardStream::Turn turn(stream_);
  if (stream_.works()) {
    const libcuda::Code code = stream_.table().download(to.data(), card_address(from.address()),
                                                        to.size(), stream_.stream());
    if (stream_.check("download", code) && stream_.wait()) return;
  }
  std::memset(to.data(), 0xff, to.size());  // NaN, not what happened to be there
}

// Copies in pieces that do not overlap: CUDA does not define the result of one where source and
// target overlap.
void CardSpace::copy(DevicePointer<const std::byte> from,
                     DevicePointer<std::byte> to,
                     std::uint64_t bytes) {
  const libcuda::Address source = card_address(from.address());
  const libcuda::Address target = card_address(to.address());
  if (bytes == 0 || source == target) return;
  const CardStream::Turn turn(stream_);
  ++num_changes_;
  const std::uint64_t distance = source > target ? source - target : target - source;
  const std::uint64_t piece = std::min<std::uint64_t>(bytes, distance);
  for (std::uint64_t done = 0; done < bytes && stream_.works(); done += piece) {
    const std::uint64_t count = std::min(piece, bytes - done);
    // Bytes are copied before a later piece writes over them.
    const std::uint64_t at = source > target ? done : bytes - done - count;
    stream_.check("copy", stream_.table().copy(target + at, source + at, count, stream_.stream()));
  }
}

void CardSpace::fill(DevicePointer<std::byte> to, std::byte value, std::uint64_t bytes) {
  if (bytes == 0) return;
  const CardStream::Turn turn(stream_);
  if (!stream_.works()) return;
  ++num_changes_;
  const libcuda::Code code = stream_.table().fill(
      card_address(to.address()), static_cast<unsigned char>(value), bytes, stream_.stream());
  stream_.check("fill", code);
}

}  // namespace kakeya::cuda
