// Passes that have the launches of the last one of their kind: those that are recorded stay, and
// nobody calls the operations of the network again. Of all that launches follow from, positions
// alone change while sequences are decoded, and attention alone depends on them, now and then.
#include <algorithm>
#include <utility>

#include "backend/cuda/cuda_executor.h"

namespace kakeya::cuda {
namespace {

// True if layers of a segment meet keys alike.
bool are_alike(const device::AttentionParams& a, const device::AttentionParams& b) {
  const auto of_cache = [](const device::CachedRows& rows) {
    return std::tuple(rows.keys == nullptr, rows.block_slots, rows.capacity, rows.sink,
                      rows.num_kv_heads, rows.head_dim, rows.vector_bytes, rows.format);
  };
  return a.num_heads == b.num_heads && a.positions == b.positions && a.window == b.window &&
         a.kept == b.kept && a.block_rows == b.block_rows && a.rows == b.rows &&
         of_cache(a.cache) == of_cache(b.cache);
}

}  // namespace

void CudaExecutor::use(Recording& recording) {
  recording.last_used = ++num_recordings_;
  recording.is_whole = false;
  launches_ = &recording.launches;
  launches_->begin_again();
}

CudaExecutor::Recording& CudaExecutor::give_recording() {
  Recording& oldest = *std::ranges::min_element(recordings_, {}, &Recording::last_used);
  oldest.key = {};
  return oldest;
}

// Blocks of keys and values are found by way of tables, whose contents begin() has seen to.
bool CudaExecutor::describe_batch() {
  described_.clear();
  const auto add = [&](auto... numbers) {
    (described_.push_back(static_cast<std::int64_t>(numbers)), ...);
  };
  add(batch().rows(), reinterpret_cast<std::uintptr_t>(tables_.data()));
  for (std::size_t s = 0; s < batch().segments.size(); ++s) {
    const Segment& segment = batch().segments[s];
    add(segment.rows, segment.logit_rows, segment.layers.size());
    for (std::size_t l = 0; l < segment.layers.size(); ++l) {
      const KvLayer& layer = segment.layers[l];
      if (layer.is_restored) return false;
      const KvRows& rows = layer.rows;
      const RowTables& tables = layers_[first_layers_[s] + l].rows;
      add(layer.window, layer.kept, rows.block_slots, rows.format, rows.capacity, rows.num_kv_heads,
          rows.head_dim, rows.sink, tables.keys, tables.values);
    }
  }
  return true;
}

// Beside launches that wait already its own ones are not all that there is.
bool CudaExecutor::repeat(const PassKey& key) {
  if (launches_ != nullptr || !driver_.takes_lists()) return false;
  if (!describe_batch()) return false;
  const auto found = std::ranges::find_if(recordings_, [&](const Recording& recording) {
    return recording.key == key && recording.batch == described_;
  });
  Recording& own = found != recordings_.end() ? *found : give_recording();
  const bool repeats = found != recordings_.end() && own.is_whole && has_equal_plans(own);
  use(own);
  if (!repeats) {
    own.key = key;
    own.batch = described_;
    own.attentions.clear();
    own.attention_bytes = 0;
    bytes_before_ = bytes_read();
    open_ = &own;
    return false;
  }
  take_inputs();
  launches_->keep(own.num_launches);
  own.is_whole = true;
  count_bytes(own.bytes);
  for (const PlannedAttention& attention : own.attentions) {
    count_bytes(attention.num_layers * attention_bytes_of(attention));
  }
  return true;
}

void CudaExecutor::remember_attention(const PlannedAttention& own) {
  for (PlannedAttention& other : open_->attentions) {
    if (other.on_tensor_cores != own.on_tensor_cores || !are_alike(other.asked, own.asked))
      continue;
    ++other.num_layers;
    return;
  }
  const auto plan = plan_attention(own.asked, own.asked.rows, own.on_tensor_cores);
  if (!plan) return void(open_ = nullptr);
  open_->attentions.push_back(own);
  open_->attentions.back().plan = *plan;
}

bool CudaExecutor::has_equal_plans(const Recording& recording) const {
  return std::ranges::all_of(recording.attentions, [&](const PlannedAttention& attention) {
    const auto plan =
        plan_attention(attention.asked, attention.asked.rows, attention.on_tensor_cores);
    return plan && *plan == attention.plan;
  });
}

std::uint64_t CudaExecutor::attention_bytes_of(const PlannedAttention& attention) const {
  return attention_bytes(attention_input(batch(), batch().segments[attention.segment],
                                         attention.queries, attention.settings, attention.layer));
}

// Its batch may be another one by now.
void CudaExecutor::close_pass() {
  if (open_ == nullptr) return;
  Recording& own = *std::exchange(open_, nullptr);
  own.num_launches = own.launches.num_recorded();
  own.bytes = bytes_read() - bytes_before_ - own.attention_bytes;
  own.is_whole = true;
}

}  // namespace kakeya::cuda
