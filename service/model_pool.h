// The models of a server within one memory limit: a model is loaded when it is first asked for, and
// given up when another one needs its memory.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kakeya/engine.h"
#include "kakeya/status.h"
#include "service/refusal.h"
#include "service/server_state.h"
#include "service/service.h"

namespace kakeya::service {

// A model while it can answer.
struct LoadedModel {
  std::shared_ptr<Engine> engine = {};
  std::unique_ptr<Service> service = {};  // goes before its engine
};

// The facts of a model that lists of models tell; what is not known before it is loaded is 0, empty
// or false.
struct ModelFacts {
  std::int64_t context = 0;  // tokens of a session
  std::int64_t hidden_size = 0;
  std::uint64_t weight_bytes = 0;
  std::string fingerprint = {};  // Engine::model_fingerprint()
  bool is_on_device = false;     // its weights are in a device's memory
  bool calls_tools = false;
  bool thinks = false;
  bool fills_in = false;  // what stands between two texts (service/infill.h)
};

// The abilities of a model, by the names that clients know them by: "completion", "tools",
// "thinking", "insert".
std::vector<std::string> capabilities_of(const ModelFacts& facts);

struct PooledModel {
  std::string name;                       // what requests call it
  std::vector<std::string> aliases = {};  // further names, as clients ask for that know no other
  std::uint64_t memory = 0;   // bytes of PoolOptions::memory that it has while it is loaded
  bool stays = false;         // is never given up
  bool is_preloaded = false;  // is loaded at once
  ModelFacts facts = {};      // as far as they are known
  // Loads it, within `memory`. On one thread, one model at a time.
  std::function<Result<LoadedModel>()> load = {};
};

struct PoolOptions {
  std::uint64_t memory = 0;  // most bytes of all loaded models
  // The time after which a model that nobody used is given up. 0: never.
  std::chrono::duration<double> idle_limit{0.0};
};

enum class ModelState : std::uint8_t { kUnloaded, kLoading, kLoaded };
// "unloaded", "loading", "loaded"
std::string_view model_state_name(ModelState state);

struct ModelStatus {
  std::string name;
  std::vector<std::string> aliases;
  ModelFacts facts;
  ModelState state = ModelState::kUnloaded;
};

// Thread-safe. Requests that wait for models get them in turns, in the order in which the models
// were asked for: one that waits has those that can be given up take no further requests, and is
// loaded when what they answer has ended.
class ModelPool {
 private:
  struct Slot;

 public:
  // A pool of `models`, at least one. Errors: kInvalidArgument for a name that two of them have;
  // kResourceExhausted for a model that, beside those that stay, does not fit into the memory; as
  // PooledModel::load() of one that is loaded at once.
  static Result<std::unique_ptr<ModelPool>> create(std::shared_ptr<ServerState> server,
                                                   std::vector<PooledModel> models,
                                                   PoolOptions options);
  // The pool of one model, which stays. The service must outlive it.
  explicit ModelPool(Service& only);

  // As stop().
  ~ModelPool();
  ModelPool(const ModelPool&) = delete;
  ModelPool& operator=(const ModelPool&) = delete;

  // Sets the most bytes of all loaded models from now on. Models that are too many for it are given
  // up, those that answer as soon as they have. Errors: kResourceExhausted as create(); then it
  // stays as it was.
  Status set_memory(std::uint64_t memory);

  ServerState& server() const { return *server_; }
  // True if it was made of several models, or of one that may be given up.
  bool has_choice() const { return has_choice_; }

  // Keeps a model loaded while it lives. Move-only; the pool must outlive it.
  class Use {
   public:
    Use() = default;
    Use(Use&& other) noexcept;
    Use& operator=(Use&& other) noexcept;
    ~Use();

    Service& service() const;

   private:
    friend class ModelPool;
    Use(ModelPool* pool, Slot* slot) : pool_(pool), slot_(slot) {}

    ModelPool* pool_ = nullptr;
    Slot* slot_ = nullptr;
  };

  // The model of this name, or alias; the first one for an empty name. Loads it if it is not there,
  // and then calls `go_on` again and again: that waits a moment and returns false to give up.
  // Errors: kNotFound for another name; kCancelled if given up; kUnavailable if it cannot be
  // loaded, for which the log has the reason, or once the pool stops.
  Outcome<Use> use(std::string_view name, const std::function<bool()>& go_on);

  // Gives a model up as soon as nobody uses it. Errors: kNotFound for another name;
  // kFailedPrecondition for one that stays.
  Outcome<void> unload(std::string_view name);

  // All of them, in the order in which they were given.
  std::vector<ModelStatus> list() const;
  // Errors: kNotFound for no such name or alias; empty is the first.
  Outcome<ModelStatus> find(std::string_view name) const;

  // The worst of its loaded models, and whether the server drains.
  Health health() const;
  // As health(), but a server that drains, or has lost a database, is ok.
  Health liveness() const;
  // All counts, as Prometheus reads them.
  std::string metrics_text() const;
  // True while a form is compiled for nobody any more.
  bool is_compiling() const;

  // Ends what is being answered, with an error that says why. Returns when that is done.
  void stop();

 private:
  ModelPool(std::shared_ptr<ServerState> server, PoolOptions options, bool has_choice);

  // The thread that loads models and gives them up.
  void run();
  void give_up_idle(std::unique_lock<std::mutex>& lock);
  // Gives models up until there is room for so many bytes; false if that waits for those who use
  // one.
  bool make_room(std::uint64_t bytes, std::unique_lock<std::mutex>& lock);
  void load(Slot& slot, std::unique_lock<std::mutex>& lock);
  void unload(Slot& slot, std::unique_lock<std::mutex>& lock);

  // Under the mutex.
  Status check_fits(std::uint64_t memory) const;
  Slot* find_slot(std::string_view name) const;
  Outcome<Slot*> known_slot(std::string_view name) const;
  void want(Slot& slot);
  static ModelStatus status_of(const Slot& slot);
  std::uint64_t memory_in_use() const;

  const std::shared_ptr<ServerState> server_;
  const std::chrono::duration<double> idle_limit_;
  const bool has_choice_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Slot>> slots_;  // never changes once requests come
  std::deque<Slot*> wanted_;                  // to be loaded, in order
  std::uint64_t memory_;                      // most bytes of all loaded models
  bool stopping_ = false;
  std::thread loader_;  // last: it uses the others
};

}  // namespace kakeya::service
