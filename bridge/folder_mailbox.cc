#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/status.h"
#include "formats/printable.h"
#include "job.h"
#include "mailbox.h"
#include "small_file.h"

namespace kakeya::bridge {
namespace {

constexpr std::string_view kExtension = ".json";

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

// The version of a file by its status: another one once it was replaced.
std::string version_of(const struct stat& info) {
  return fmt::format("{}-{}-{}", info.st_ino, info.st_size, info.st_mtime);
}

class FolderMailbox : public Mailbox {
 public:
  FolderMailbox(Descriptor jobs, Descriptor results)
      : jobs_(std::move(jobs)), results_(std::move(results)) {}

  Result<std::vector<Entry>> list(Kind kind) override {
    const int folder = ::openat(tray(kind), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const std::unique_ptr<DIR, CloseFolder> open(folder < 0 ? nullptr : ::fdopendir(folder));
    if (open == nullptr) {
      return error(StatusCode::kUnavailable, "cannot list the folder: {}", std::strerror(errno));
    }
    std::vector<Entry> entries;
    while (const dirent* each = ::readdir(open.get())) {
      std::string name = each->d_name;
      // Hidden files are being written; those of other extensions belong to whatever syncs.
      if (name.front() == '.' || !name.ends_with(kExtension)) continue;
      if (entries.size() == kMostEntries) break;
      entries.push_back(entry(kind, name));
    }
    std::ranges::sort(entries, {}, &Entry::name);
    return entries;
  }

  Result<std::string> read(Kind kind, const std::string& id) override {
    return read_small_file(tray(kind), id + std::string(kExtension), most_bytes(kind));
  }

  Status put(Kind kind, const std::string& id, const std::string& text) override {
    return write_small_file(tray(kind), id + std::string(kExtension), text, Sharing::kUmask);
  }

  Status remove(Kind kind, const std::string& id) override {
    const std::string name = id + std::string(kExtension);
    if (::unlinkat(tray(kind), name.c_str(), 0) == 0 || errno == ENOENT) return {};
    return error(StatusCode::kUnavailable, "cannot remove {}: {}", name, std::strerror(errno));
  }

 private:
  int tray(Kind kind) const { return kind == Kind::kJob ? jobs_.get() : results_.get(); }

  Entry entry(Kind kind, const std::string& file) const {
    struct stat info = {};
    Entry entry{.name = file.substr(0, file.size() - kExtension.size())};
    if (::fstatat(tray(kind), file.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
      entry.version = version_of(info);
    }
    if (!is_id(entry.name)) entry.problem = "expected the name of a job, an id";
    return entry;
  }

  Descriptor jobs_;
  Descriptor results_;
};

}  // namespace

Result<std::unique_ptr<Mailbox>> open_folder_mailbox(const std::string& path) {
  const Descriptor top(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (top.get() < 0) {
    return error(StatusCode::kNotFound, "{}: expected a folder, or a git remote: {}", path,
                 std::strerror(errno));
  }
  KAKEYA_ASSIGN_OR_RETURN(Descriptor jobs, open_folder(top.get(), "jobs", Sharing::kUmask));
  KAKEYA_ASSIGN_OR_RETURN(Descriptor results, open_folder(top.get(), "results", Sharing::kUmask));
  return std::make_unique<FolderMailbox>(std::move(jobs), std::move(results));
}

bool is_address(const std::string& where) {
  const std::size_t colon = where.find(':');
  return colon != std::string::npos && colon < where.find('/');
}

std::string absolute_place(const std::string& where) {
  return is_address(where) ? where : std::filesystem::absolute(where).string();
}

Result<std::unique_ptr<Mailbox>> open_mailbox(const std::string& where,
                                              const std::atomic<bool>* stop) {
  if (is_address(where) || where.ends_with(".git")) return open_git_mailbox(where, stop);
  return open_folder_mailbox(where);
}

}  // namespace kakeya::bridge
