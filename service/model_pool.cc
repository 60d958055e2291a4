#include "service/model_pool.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/memory_budget.h"
#include "base/status.h"
#include "service/answer_request.h"
#include "service/infill.h"

namespace kakeya::service {
namespace {

using Clock = std::chrono::steady_clock;

ModelFacts facts_of(Service& service) {
  const Engine& engine = service.engine();
  return {.context = context_of(engine),
          .hidden_size = engine.hidden_size(),
          .weight_bytes = engine.footprint().reserved_bytes(MemoryClass::kWeights),
          .fingerprint = engine.model_fingerprint(),
          .is_on_device =
              engine.backend_name().starts_with("cuda") || engine.backend_name().starts_with("mlx"),
          .calls_tools = service.planner().tool_format() != ToolFormat::kNone,
          .thinks = service.planner().thought_markers().has_value(),
          .fills_in = find_infill_tokens(service.tokenizer()).has_value()};
}

Refusal stopping() {
  return {.status = StatusCode::kUnavailable, .message = "the server is shutting down"};
}

}  // namespace

std::vector<std::string> capabilities_of(const ModelFacts& facts) {
  std::vector<std::string> names = {"completion"};
  if (facts.calls_tools) names.emplace_back("tools");
  if (facts.thinks) names.emplace_back("thinking");
  if (facts.fills_in) names.emplace_back("insert");
  return names;
}

std::string_view model_state_name(ModelState state) {
  switch (state) {
    case ModelState::kUnloaded:
      return "unloaded";
    case ModelState::kLoading:
      return "loading";
    case ModelState::kLoaded:
      return "loaded";
  }
  return "?";
}

struct ModelPool::Slot {
  explicit Slot(PooledModel pooled) : model(std::move(pooled)) {}

  bool has_name(std::string_view name) const {
    return model.name == name || std::ranges::find(model.aliases, name) != model.aliases.end();
  }
  // Says whether the loader may have its memory as soon as nobody uses it. Who waits for it is to
  // have it first.
  bool may_go() const { return state == ModelState::kLoaded && !model.stays && waiting == 0; }

  PooledModel model;
  ModelState state = ModelState::kUnloaded;
  bool is_leaving = false;  // loaded, but takes no further requests
  LoadedModel loaded = {};
  Service* service = nullptr;  // while it is loaded
  std::int64_t uses = 0;
  std::int64_t waiting = 0;   // requests that wait until it is loaded
  std::int64_t failures = 0;  // of loading
  std::string failure = {};   // the last one
  Clock::time_point loaded_at = {};
  Clock::time_point used_at = {};
};

ModelPool::ModelPool(std::shared_ptr<ServerState> server, PoolOptions options, bool has_choice)
    : server_(std::move(server)),
      idle_limit_(options.idle_limit),
      has_choice_(has_choice),
      memory_(options.memory) {}

ModelPool::ModelPool(Service& only) : ModelPool(only.shared_server(), {}, false) {
  slots_.push_back(std::make_unique<Slot>(PooledModel{.name = only.options().model_name,
                                                      .aliases = only.options().aliases,
                                                      .stays = true,
                                                      .facts = facts_of(only)}));
  slots_.front()->state = ModelState::kLoaded;
  slots_.front()->service = &only;
}

Result<std::unique_ptr<ModelPool>> ModelPool::create(std::shared_ptr<ServerState> server,
                                                     std::vector<PooledModel> models,
                                                     PoolOptions options) {
  std::unique_ptr<ModelPool> pool(new ModelPool(std::move(server), options, true));
  for (PooledModel& model : models) {
    std::vector<std::string> names = model.aliases;
    names.push_back(model.name);
    for (const std::string& name : names) {
      if (pool->find_slot(name) != nullptr || std::ranges::count(names, name) > 1) {
        return error(StatusCode::kInvalidArgument, "expected a name of one model, got '{}' twice",
                     name);
      }
    }
    pool->slots_.push_back(std::make_unique<Slot>(std::move(model)));
  }
  KAKEYA_TRY(pool->check_fits(options.memory));
  for (const auto& slot : pool->slots_) {
    if (!slot->model.is_preloaded) continue;
    if (pool->memory_in_use() + slot->model.memory > options.memory) {
      return error(StatusCode::kResourceExhausted,
                   "{}: expected models to be loaded at once that fit into {} together, got more",
                   slot->model.name, format_bytes(options.memory));
    }
    std::unique_lock lock(pool->mutex_);
    pool->load(*slot, lock);
    if (slot->state != ModelState::kLoaded) {
      return error(StatusCode::kFailedPrecondition, "{}: {}", slot->model.name, slot->failure);
    }
  }
  pool->loader_ = std::thread([raw = pool.get()] { raw->run(); });
  return pool;
}

ModelPool::~ModelPool() {
  stop();
}

Status ModelPool::check_fits(std::uint64_t memory) const {
  std::uint64_t staying = 0;
  for (const auto& slot : slots_) {
    if (slot->model.stays) staying += slot->model.memory;
  }
  for (const auto& slot : slots_) {
    const std::uint64_t needed = staying + (slot->model.stays ? 0 : slot->model.memory);
    if (needed > memory) {
      return error(StatusCode::kResourceExhausted,
                   "{}: expected at most {} of memory for it and the models that stay, got {}",
                   slot->model.name, format_bytes(memory), format_bytes(needed));
    }
  }
  return {};
}

Status ModelPool::set_memory(std::uint64_t memory) {
  const std::lock_guard lock(mutex_);
  KAKEYA_TRY(check_fits(memory));
  memory_ = memory;
  changed_.notify_all();
  return {};
}

ModelPool::Use::Use(Use&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), slot_(std::exchange(other.slot_, nullptr)) {}

ModelPool::Use& ModelPool::Use::operator=(Use&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(slot_, other.slot_);
  return *this;
}

ModelPool::Use::~Use() {
  if (slot_ == nullptr) return;
  const std::lock_guard lock(pool_->mutex_);
  --slot_->uses;
  slot_->used_at = Clock::now();
  pool_->changed_.notify_all();
}

Service& ModelPool::Use::service() const {
  return *slot_->service;
}

ModelPool::Slot* ModelPool::find_slot(std::string_view name) const {
  // As clients say that they mean no certain version.
  constexpr std::string_view kLatest = ":latest";
  if (name.ends_with(kLatest)) name.remove_suffix(kLatest.size());
  for (const auto& slot : slots_) {
    if (name.empty() || slot->has_name(name)) return slot.get();
  }
  return nullptr;
}

Outcome<ModelPool::Slot*> ModelPool::known_slot(std::string_view name) const {
  if (Slot* const slot = find_slot(name); slot != nullptr) return slot;
  std::vector<std::string_view> names;
  for (const auto& slot : slots_) names.push_back(slot->model.name);
  return tl::unexpected(unknown_model(fmt::format("{}", fmt::join(names, " or ")), name));
}

void ModelPool::want(Slot& slot) {
  if (slot.state == ModelState::kLoading) return;
  if (std::ranges::find(wanted_, &slot) == wanted_.end()) wanted_.push_back(&slot);
  changed_.notify_all();
}

Outcome<ModelPool::Use> ModelPool::use(std::string_view name, const std::function<bool()>& go_on) {
  std::unique_lock lock(mutex_);
  const auto known = known_slot(name);
  if (!known) return tl::unexpected(known.error());
  Slot& slot = **known;
  const std::int64_t failures = slot.failures;
  ++slot.waiting;
  std::optional<Refusal> refused;
  if (stopping_) refused = stopping();
  while (!refused && (slot.state != ModelState::kLoaded || slot.is_leaving)) {
    if (slot.failures != failures) {
      // The reason names files of the server, which are no client's business.
      refused =
          Refusal{.status = StatusCode::kUnavailable,
                  .message = slot.model.name + " cannot be loaded: the server's log says why"};
    }
    if (refused) break;
    want(slot);
    lock.unlock();
    const bool goes_on = go_on();
    lock.lock();
    if (stopping_) {
      refused = stopping();
    } else if (!goes_on) {
      refused = Refusal{.status = StatusCode::kCancelled,
                        .message = fmt::format("{} was not loaded in time", slot.model.name)};
    }
  }
  --slot.waiting;
  changed_.notify_all();
  if (refused) return tl::unexpected(std::move(*refused));
  ++slot.uses;
  slot.used_at = Clock::now();
  return Use(this, &slot);
}

Outcome<void> ModelPool::unload(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto known = known_slot(name);
  if (!known) return tl::unexpected(known.error());
  Slot& slot = **known;
  if (slot.model.stays) {
    return tl::unexpected(Refusal{.status = StatusCode::kFailedPrecondition,
                                  .message = fmt::format("model: {} stays loaded", slot.model.name),
                                  .parameter = "model"});
  }
  if (slot.state == ModelState::kLoaded) slot.is_leaving = true;
  changed_.notify_all();
  return {};
}

void ModelPool::run() {
  constexpr std::chrono::milliseconds kLook{100};  // a model's idle time ends without a word
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    give_up_idle(lock);
    make_room(0, lock);  // where the limit has shrunk
    // Nobody may wait for it any more.
    std::erase_if(wanted_, [](const Slot* slot) { return slot->waiting == 0; });
    Slot* const next = wanted_.empty() ? nullptr : wanted_.front();
    // One that is leaving is loaded anew as soon as its answers have ended.
    const bool can_come = next != nullptr && next->state == ModelState::kUnloaded;
    if (can_come && make_room(next->model.memory, lock)) {
      wanted_.pop_front();
      load(*next, lock);
    } else if (!stopping_) {
      changed_.wait_for(lock, kLook);
    }
  }
}

void ModelPool::give_up_idle(std::unique_lock<std::mutex>& lock) {
  for (const auto& slot : slots_) {
    if (!slot->may_go() && !slot->is_leaving) continue;
    const bool is_idle = idle_limit_.count() > 0.0 && Clock::now() - slot->used_at > idle_limit_;
    if (slot->uses == 0 && (slot->is_leaving || is_idle)) unload(*slot, lock);
  }
}

bool ModelPool::make_room(std::uint64_t bytes, std::unique_lock<std::mutex>& lock) {
  const auto is_leaving = [](const auto& slot) { return slot->is_leaving; };
  const auto goes_first = [](const Slot* a, const Slot* b) {
    if ((a->uses == 0) != (b->uses == 0)) return a->uses == 0;
    // Those in use: the one that has had the longest turn.
    return a->uses == 0 ? a->used_at < b->used_at : a->loaded_at < b->loaded_at;
  };
  while (memory_in_use() + bytes > memory_) {
    const auto leaving = std::ranges::find_if(slots_, is_leaving);
    Slot* going = leaving != slots_.end() ? leaving->get() : nullptr;
    if (going == nullptr) {
      std::vector<Slot*> candidates;
      for (const auto& slot : slots_) {
        if (slot->may_go()) candidates.push_back(slot.get());
      }
      if (candidates.empty()) return false;
      going = *std::ranges::min_element(candidates, goes_first);
      going->is_leaving = true;
    }
    if (going->uses > 0) return false;
    unload(*going, lock);
  }
  return true;
}

void ModelPool::load(Slot& slot, std::unique_lock<std::mutex>& lock) {
  slot.state = ModelState::kLoading;
  lock.unlock();
  const auto begin = Clock::now();
  auto loaded = slot.model.load();
  const std::chrono::duration<double> seconds = Clock::now() - begin;
  if (loaded) {
    server_->log().add(LogLevel::kInfo, "model loaded",
                       {{"model", slot.model.name}, {"seconds", seconds.count()}});
  } else {
    server_->log().add(LogLevel::kWarn, "model not loaded",
                       {{"model", slot.model.name}, {"reason", loaded.error().message()}});
  }
  lock.lock();
  if (loaded) {
    slot.loaded = std::move(*loaded);
    slot.service = slot.loaded.service.get();
    slot.model.facts = facts_of(*slot.service);
    slot.state = ModelState::kLoaded;
    slot.is_leaving = false;
    slot.loaded_at = slot.used_at = Clock::now();
  } else {
    slot.state = ModelState::kUnloaded;
    slot.failure = loaded.error().message();
    ++slot.failures;
  }
  changed_.notify_all();
}

void ModelPool::unload(Slot& slot, std::unique_lock<std::mutex>& lock) {
  // Its memory is counted until it is free.
  slot.state = ModelState::kLoading;
  slot.service = nullptr;
  LoadedModel leaving = std::exchange(slot.loaded, {});
  lock.unlock();
  leaving.service.reset();
  leaving.engine.reset();
  server_->log().add(LogLevel::kInfo, "model given up", {{"model", slot.model.name}});
  lock.lock();
  slot.is_leaving = false;
  slot.state = ModelState::kUnloaded;
  changed_.notify_all();
}

std::uint64_t ModelPool::memory_in_use() const {
  std::uint64_t bytes = 0;
  for (const auto& slot : slots_) {
    if (slot->state != ModelState::kUnloaded) bytes += slot->model.memory;
  }
  return bytes;
}

ModelStatus ModelPool::status_of(const Slot& slot) {
  return {.name = slot.model.name,
          .aliases = slot.model.aliases,
          .facts = slot.model.facts,
          .state = slot.state};
}

std::vector<ModelStatus> ModelPool::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<ModelStatus> all;
  for (const auto& slot : slots_) all.push_back(status_of(*slot));
  return all;
}

Outcome<ModelStatus> ModelPool::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto slot = known_slot(name);
  if (!slot) return tl::unexpected(slot.error());
  return status_of(**slot);
}

Health ModelPool::liveness() const {
  const std::lock_guard lock(mutex_);
  for (const auto& slot : slots_) {
    if (slot->service == nullptr) continue;
    Health health = slot->service->liveness();
    if (!health.is_well()) return health;
  }
  return {};
}

Health ModelPool::health() const {
  if (server_->has_announced_drain()) return {"draining", "the server is shutting down"};
  const std::lock_guard lock(mutex_);
  Health worst;
  for (const auto& slot : slots_) {
    if (slot->service == nullptr) continue;
    Health health = slot->service->health();
    if (!health.is_well()) return health;
    if (worst.reason.empty()) worst = std::move(health);
  }
  return worst;
}

std::string ModelPool::metrics_text() const {
  std::vector<MetricFamilies> parts = {server_->metrics()};
  const std::lock_guard lock(mutex_);
  for (const auto& slot : slots_) {
    if (slot->service == nullptr) continue;
    MetricFamilies families = slot->service->metric_families();
    if (has_choice()) label_families(slot->model.name, families);
    parts.push_back(std::move(families));
  }
  return service::metrics_text(std::move(parts));
}

bool ModelPool::is_compiling() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(slots_, [](const auto& slot) {
    return slot->service != nullptr && slot->service->planner().is_compiling();
  });
}

void ModelPool::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    for (const auto& slot : slots_) {
      if (slot->service != nullptr) slot->service->stop();
    }
  }
  if (loader_.joinable()) loader_.join();
}

}  // namespace kakeya::service
