#include "cli/hub/pull.h"

#include <fmt/format.h>

#include <utility>

#include "base/status.h"
#include "cli/hub/blob_writer.h"
#include "cli/hub/http.h"
#include "cli/hub/hub_cache.h"
#include "cli/hub/hub_choice.h"
#include "cli/hub/hub_client.h"
#include "cli/models/place_listing.h"

namespace kakeya::cli {
namespace {

constexpr std::size_t kMostIndexBytes = std::size_t{64} << 20;

class Pull {
 public:
  Pull(HubName name, std::string revision, const HubSettings& settings, HubWatch& watch)
      : name_(std::move(name)),
        revision_(std::move(revision)),
        watch_(watch),
        client_(settings, watch),
        cache_(settings.cache, name_.repository) {}

  Result<PulledModel> run();

 private:
  // Brings a file, or finds it, and links it.
  Status bring(const HubFile& file);
  Result<bool> bring_blob(const HubFile& file);
  Status fetch_blob(const HubFile& file);
  // Adds the weights that an index names.
  Status add_indexed(const HubListing& listing, std::vector<HubFile>& files);
  Status check_space(const std::vector<HubFile>& files) const;

  HubName name_;
  std::string revision_;
  HubWatch& watch_;
  HubClient client_;
  HubCache cache_;
  PulledModel pulled_;
};

Result<PulledModel> Pull::run() {
  KAKEYA_ASSIGN_OR_RETURN(const HubListing listing, client_.list(name_.repository, revision_));
  KAKEYA_ASSIGN_OR_RETURN(HubChoice choice, choose_files(name_, listing));
  if (!choice.note.empty()) watch_.says("note: " + choice.note);
  pulled_.repository = name_.repository;
  pulled_.commit = listing.commit;
  KAKEYA_TRY(cache_.make_folders(listing.commit));
  KAKEYA_TRY(check_space(choice.files));
  if (choice.is_split) KAKEYA_TRY(add_indexed(listing, choice.files));
  for (const HubFile& file : choice.files) KAKEYA_TRY(bring(file));
  KAKEYA_TRY(cache_.write_ref(revision_, listing.commit));
  pulled_.path = cache_.snapshot(listing.commit);
  if (is_model_file(choice.files.front().path)) pulled_.path += "/" + choice.files.front().path;
  return std::move(pulled_);
}

Status Pull::check_space(const std::vector<HubFile>& files) const {
  std::uint64_t missing = 0;
  for (const HubFile& file : files) missing += file.bytes - cache_.bytes_here(file);
  return cache_.check_free(missing);
}

Status Pull::add_indexed(const HubListing& listing, std::vector<HubFile>& files) {
  const HubFile index = files.back();
  files.pop_back();
  KAKEYA_TRY(bring(index));
  KAKEYA_ASSIGN_OR_RETURN(const std::string text,
                          read_small_file(cache_.blob(index), kMostIndexBytes));
  const auto names = files_of_index(text);
  if (!names) {
    return data_loss("{}: {} cannot be used: {}", name_.repository, index.path,
                     names.error().message());
  }
  for (const std::string& name : *names) {
    const HubFile* const file = listing.find(name);
    if (file == nullptr) {
      return error(StatusCode::kNotFound, "{}: {} names {}, which is not there", name_.repository,
                   index.path, name);
    }
    files.push_back(*file);
  }
  return check_space(files);
}

Status Pull::bring(const HubFile& file) {
  KAKEYA_ASSIGN_OR_RETURN(const bool fetched, bring_blob(file));
  KAKEYA_TRY(cache_.link(pulled_.commit, file));
  watch_.ends(file, fetched);
  pulled_.files.push_back({.path = file.path, .bytes = file.bytes, .fetched = fetched});
  return {};
}

Result<bool> Pull::bring_blob(const HubFile& file) {
  if (cache_.has(file)) return false;
  bool said = false;
  const auto waits = [&] {
    if (!said) watch_.says(file.path + ": another process fetches it; waiting");
    said = true;
    return !watch_.stopped();
  };
  KAKEYA_ASSIGN_OR_RETURN(const BlobLock lock, BlobLock::take(cache_.lock(file), waits));
  if (cache_.has(file)) return false;
  KAKEYA_TRY(fetch_blob(file));
  return true;
}

Status Pull::fetch_blob(const HubFile& file) {
  KAKEYA_ASSIGN_OR_RETURN(
      const std::unique_ptr<BlobWriter> writer,
      BlobWriter::open(cache_.begun_blob(file), file, [&] { return watch_.stopped(); }));
  const HubFetch fetch = {.url = client_.url_of(name_.repository, pulled_.commit, file.path),
                          .repository = name_.repository,
                          .name = file.path,
                          .from = [&] { return writer->bytes(); },
                          .take =
                              [&](std::string_view bytes) {
                                const bool goes_on = writer->write(bytes);
                                watch_.moves(file, writer->bytes());
                                return goes_on;
                              },
                          .restart = [&] { return writer->restart(); }};
  if (writer->bytes() < file.bytes) {
    const Status status = client_.fetch(fetch);
    if (!writer->problem().empty()) return data_loss("{}", writer->problem());
    KAKEYA_TRY(status);
  }
  return writer->finish(cache_.blob(file));
}

}  // namespace

Result<PulledModel> pull_model(const std::string& name,
                               const std::string& revision,
                               const HubSettings& settings,
                               HubWatch& watch) {
  if (!has_http()) {
    return error(StatusCode::kUnimplemented,
                 "this build cannot fetch models: it was made without libcurl "
                 "(libcurl4-openssl-dev)");
  }
  KAKEYA_ASSIGN_OR_RETURN(HubName parsed, parse_hub_name(name));
  KAKEYA_TRY(check_revision(revision));
  return Pull(std::move(parsed), revision, settings, watch).run();
}

}  // namespace kakeya::cli
