#include "cli/hub/blob_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "base/status.h"
#include "formats/printable.h"

namespace kakeya::cli {

BlobWriter::BlobWriter(std::string path, const HubFile& file)
    : path_(std::move(path)), file_(file), context_(::EVP_MD_CTX_new()) {}

BlobWriter::~BlobWriter() {
  ::EVP_MD_CTX_free(context_);
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<std::unique_ptr<BlobWriter>> BlobWriter::open(const std::string& path,
                                                     const HubFile& file,
                                                     const std::function<bool()>& stopped) {
  std::unique_ptr<BlobWriter> writer(new BlobWriter(path, file));
  writer->descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (writer->descriptor_ < 0) {
    return error(StatusCode::kFailedPrecondition, "{}: cannot be written: {}", path,
                 std::strerror(errno));
  }
  writer->begin_hash();
  KAKEYA_TRY(writer->read_begun(stopped));
  return writer;
}

void BlobWriter::begin_hash() {
  ::EVP_DigestInit_ex(context_, file_.is_sha256 ? EVP_sha256() : EVP_sha1(), nullptr);
  // Git's hash of a blob is that of its size, too.
  if (!file_.is_sha256) {
    const std::string header = fmt::format("blob {}", file_.bytes);
    ::EVP_DigestUpdate(context_, header.c_str(), header.size() + 1);
  }
}

void BlobWriter::add_to_hash(std::string_view bytes) {
  ::EVP_DigestUpdate(context_, bytes.data(), bytes.size());
}

std::string BlobWriter::hash() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest = {};
  unsigned int size = 0;
  ::EVP_DigestFinal_ex(context_, digest.data(), &size);
  std::string digits;
  for (unsigned int i = 0; i < size; ++i) digits += fmt::format("{:02x}", digest[i]);
  return digits;
}

Status BlobWriter::read_begun(const std::function<bool()>& stopped) {
  constexpr std::size_t kChunk = 1 << 20;
  std::vector<char> chunk(kChunk);
  for (;;) {
    if (stopped()) return error(StatusCode::kCancelled, "stopped");
    const ssize_t count = ::read(descriptor_, chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return error(StatusCode::kFailedPrecondition, "{}: cannot be read: {}", path_,
                   std::strerror(errno));
    }
    if (count == 0) return {};
    bytes_ += static_cast<std::uint64_t>(count);
    if (bytes_ > file_.bytes) {
      if (restart()) return {};
      return error(StatusCode::kFailedPrecondition, "{}", problem_);
    }
    add_to_hash({chunk.data(), static_cast<std::size_t>(count)});
  }
}

bool BlobWriter::write(std::string_view bytes) {
  if (bytes.size() > file_.bytes - bytes_) {
    problem_ = fmt::format("{}: expected {} bytes, got more", printable(file_.path), file_.bytes);
    return false;
  }
  add_to_hash(bytes);
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      problem_ = fmt::format("{}: cannot be written: {}", path_, std::strerror(errno));
      return false;
    }
    bytes_ += static_cast<std::uint64_t>(count);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

bool BlobWriter::restart() {
  if (::ftruncate(descriptor_, 0) != 0 || ::lseek(descriptor_, 0, SEEK_SET) != 0) {
    problem_ = fmt::format("{}: cannot be written: {}", path_, std::strerror(errno));
    return false;
  }
  bytes_ = 0;
  begin_hash();
  return true;
}

Status BlobWriter::finish(const std::string& final_path) {
  const auto reject = [&](const char* what, const std::string& expected, const std::string& got) {
    ::unlink(path_.c_str());
    return data_loss("{}: expected the {} {}, got {}: it was removed", printable(file_.path), what,
                     expected, got);
  };
  if (bytes_ != file_.bytes) {
    return reject("size", std::to_string(file_.bytes), std::to_string(bytes_));
  }
  const std::string got = hash();
  if (got != file_.hash) return reject(file_.is_sha256 ? "SHA-256" : "SHA-1", file_.hash, got);
  if (::fsync(descriptor_) == 0 && std::rename(path_.c_str(), final_path.c_str()) == 0) return {};
  return error(StatusCode::kFailedPrecondition, "{}: cannot be written: {}", final_path,
               std::strerror(errno));
}

}  // namespace kakeya::cli
