// Writing of safetensors files, declared in formats/safetensors.h.
#include <fcntl.h>
#include <simdjson.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <set>

#include "base/status.h"
#include "formats/printable.h"
#include "formats/safetensors.h"

namespace kakeya {

namespace {

constexpr std::size_t kAlignment = 8;
constexpr int kTemporaryNames = 100;

// `text` as a JSON string; it must be valid UTF-8.
std::string json_string(std::string_view text) {
  std::string result = "\"";
  for (const char character : text) {
    if (character == '"' || character == '\\') {
      result.push_back('\\');
      result.push_back(character);
    } else if (static_cast<unsigned char>(character) < 0x20) {
      fmt::format_to(std::back_inserter(result), "\\u{:04x}", static_cast<unsigned>(character));
    } else {
      result.push_back(character);
    }
  }
  return result + '"';
}

Status check_text(std::string_view text) {
  if (simdjson::validate_utf8(text.data(), text.size())) return {};
  return invalid_argument("\"{}\" is not valid UTF-8", printable(text));
}

Result<std::string> make_header(std::span<const TensorView> tensors,
                                const SafetensorsMetadata& metadata) {
  std::vector<std::string> fields;
  if (!metadata.empty()) {
    std::vector<std::string> entries;
    for (const auto& [key, value] : metadata) {
      KAKEYA_TRY(check_text(key));
      KAKEYA_TRY(check_text(value));
      entries.push_back(json_string(key) + ":" + json_string(value));
    }
    fields.push_back(fmt::format("\"__metadata__\":{{{}}}", fmt::join(entries, ",")));
  }
  std::set<std::string_view> names;
  std::size_t offset = 0;
  for (const TensorView& tensor : tensors) {
    KAKEYA_TRY(check_text(tensor.name));
    if (tensor.name == "__metadata__" || !names.insert(tensor.name).second) {
      return invalid_argument("tensor name \"{}\" is reserved or used twice",
                              printable(tensor.name));
    }
    const std::size_t end = offset + tensor.bytes();
    fields.push_back(fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                                 json_string(tensor.name), dtype_name(tensor.dtype),
                                 fmt::join(tensor.shape, ","), offset, end));
    offset = end;
  }
  std::string header = fmt::format("{{{}}}", fmt::join(fields, ","));
  header.resize((header.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  return header;
}

// A file created beside its final place; removed unless commit() has renamed it there.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& target) : target_(target) {
    for (int i = 0; i < kTemporaryNames && fd_ < 0; ++i) {
      path_ = fmt::format("{}.{}-{}.partial", target, ::getpid(), i);
      fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (fd_ < 0 && errno != EEXIST) break;
    }
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (fd_ < 0) return;
    ::close(fd_);
    if (!committed_) ::unlink(path_.c_str());
  }

  bool is_open() const { return fd_ >= 0; }

  bool write(const void* data, std::size_t size) {
    const char* next = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t written = ::write(fd_, next, size);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return false;
      next += written;
      size -= static_cast<std::size_t>(written);
    }
    return true;
  }

  bool commit() {
    committed_ = ::fsync(fd_) == 0 && std::rename(path_.c_str(), target_.c_str()) == 0;
    return committed_;
  }

 private:
  std::string target_;
  std::string path_;
  int fd_ = -1;
  bool committed_ = false;
};

}  // namespace

Status write_safetensors(const std::string& path,
                         std::span<const TensorView> tensors,
                         const SafetensorsMetadata& metadata) {
  auto header = make_header(tensors, metadata);
  if (!header) return Unexpected(header.error().with_context(path));
  TemporaryFile file(path);
  const std::uint64_t length = header->size();
  bool ok = file.is_open() && file.write(&length, sizeof(length)) &&
            file.write(header->data(), header->size());
  for (const TensorView& tensor : tensors) ok = ok && file.write(tensor.data, tensor.bytes());
  ok = ok && file.commit();
  if (!ok) {
    return error(StatusCode::kUnavailable, "cannot write {}: {}", path, std::strerror(errno));
  }
  return {};
}

}  // namespace kakeya
