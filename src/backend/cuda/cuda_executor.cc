// Scratch, and operations on rows as launches.
#include "backend/cuda/cuda_executor.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/device/attention_parts.h"
#include "backend/cuda/device/grouped_experts.h"
#include "backend/cuda/device/route.h"
#include "backend/cuda/device/rows.h"
#include "backend/cuda/launch_shapes.h"
#include "base/check.h"

namespace kakeya::cuda {
namespace {

// The parts of the scratch, each on a boundary of 64 bytes.
struct Layout {
  std::uint64_t used = 0;

  std::uint64_t take(std::int64_t count, std::uint64_t size) {
    const std::uint64_t at = used;
    used += MemoryBudget::charged_bytes(static_cast<std::uint64_t>(count) * size);
    return at;
  }
};

struct ScratchPlaces {
  std::uint64_t positions;  // behind the number of the pass
  std::uint64_t ids;
  std::uint64_t hidden;
  std::uint64_t numbers;
  std::uint64_t low_sums;
  std::uint64_t codes;
  std::uint64_t rounding_bytes;  // from one of these three to the next of its kind
  std::uint64_t partials;
  std::uint64_t expert_order;
  std::uint64_t expert_tiles;
  std::uint64_t expert_ranks;
  std::uint64_t counters;  // one of routes, then those of attention
  std::uint64_t counter_bytes;
  std::uint64_t bytes;
};

// Room for the spans of one row at least, with their two numbers, and of 16 decoded ones: so many
// rows keep a card busy. On tensor cores spans are shorter: room for those of 8 rows that see 64k
// positions each.
std::int64_t count_partials(const ExecutorPlan& plan) {
  constexpr std::int64_t kTensorRows = 8;
  const std::int64_t rows = std::clamp<std::int64_t>(plan.max_rows, 3, 16);
  const std::int64_t tensor_spans = plan.max_positions / device::kTensorSpan + 2;
  const std::int64_t spans =
      std::max(device::kMaxSpans * rows,
               std::min<std::int64_t>(plan.max_rows, kTensorRows) *
                   std::min<std::int64_t>(tensor_spans, 65536 / device::kTensorSpan + 2));
  // The two numbers besides are a sixteenth of a head of 32 elements.
  return spans * (plan.max_query_width + plan.max_query_width / 16);
}

ScratchPlaces places_of(const ExecutorPlan& plan,
                        std::size_t num_roundings,
                        std::int64_t num_counters) {
  const std::int64_t hidden = plan.max_rows * plan.top_k_experts * plan.moe_intermediate_size;
  const std::int64_t steps =
      std::max(plan.max_rows * device::num_steps(std::max(plan.max_matmul_width, plan.hidden_size)),
               plan.max_rows * plan.top_k_experts * device::num_steps(plan.moe_intermediate_size));
  Layout layout;
  ScratchPlaces places = {};
  places.positions = layout.take(1 + plan.max_rows, sizeof(std::int64_t)) + sizeof(std::int64_t);
  places.ids = layout.take(plan.max_rows, sizeof(std::int32_t));
  places.hidden = layout.take(hidden, sizeof(float));
  places.numbers = layout.take(steps * device::kStepNumbers, sizeof(float));
  places.low_sums = layout.take(steps * device::kStepLowSums, sizeof(float));
  places.codes = layout.take(steps * device::kStepColumns, sizeof(std::int8_t));
  places.rounding_bytes = layout.used - places.numbers;
  layout.used += (num_roundings - 1) * places.rounding_bytes;
  places.partials = layout.take(count_partials(plan), sizeof(float));
  const std::int64_t pairs = plan.max_rows * plan.top_k_experts;
  places.expert_order = layout.take(pairs, sizeof(std::int32_t));
  places.expert_tiles =
      layout.take(count_expert_tiles(pairs, plan.num_experts), sizeof(device::ExpertTile));
  places.expert_ranks = layout.take(pairs * plan.hidden_size, sizeof(float));
  places.counters = layout.take(num_counters, sizeof(std::uint32_t));
  places.counter_bytes = layout.used - places.counters;
  places.bytes = layout.used;
  return places;
}

struct PinnedPlaces {
  std::uint64_t told;
  std::uint64_t lists;
  std::uint64_t inputs;  // each as the scratch begins
  std::uint64_t bytes;
};

PinnedPlaces pinned_places_of(const ExecutorPlan& plan,
                              const ScratchPlaces& places,
                              std::size_t num_inputs) {
  Layout layout;
  PinnedPlaces pinned = {};
  pinned.told = layout.take(1, sizeof(std::int64_t));
  pinned.lists = layout.take(CudaExecutor::most_listed(plan), sizeof(device::ListedLogit));
  pinned.inputs = layout.take(static_cast<std::int64_t>(num_inputs), places.hidden);
  pinned.bytes = layout.used;
  return pinned;
}

}  // namespace

std::uint64_t CudaExecutor::scratch_bytes(const ExecutorPlan& plan) {
  return places_of(plan, kRoundings, 1 + kAttentionCounters).bytes;
}

std::size_t CudaExecutor::pinned_bytes(const ExecutorPlan& plan) {
  const ScratchPlaces places = places_of(plan, kRoundings, 1 + kAttentionCounters);
  return pinned_places_of(plan, places, kBegunInputs).bytes;
}

CudaExecutor::CudaExecutor(Driver& driver,
                           const ExecutorPlan& plan,
                           Buffer scratch,
                           std::shared_ptr<std::byte> pinned,
                           MemoryBudget& budget)
    : driver_(driver),
      plan_(plan),
      scratch_(std::move(scratch)),
      pinned_(std::move(pinned)),
      num_partials_(count_partials(plan)),
      tables_(driver, budget) {
  const ScratchPlaces places = places_of(plan, kRoundings, 1 + kAttentionCounters);
  const auto at = [&]<typename T>(T*& pointer, std::uint64_t place) {
    pointer = reinterpret_cast<T*>(scratch_.data() + place);
  };
  at(positions_, places.positions);
  pass_number_ = positions_ - 1;
  at(ids_, places.ids);
  at(hidden_, places.hidden);
  for (std::size_t i = 0; i < kRoundings; ++i) {
    at(roundings_[i].numbers, places.numbers + i * places.rounding_bytes);
    at(roundings_[i].low_sums, places.low_sums + i * places.rounding_bytes);
    at(roundings_[i].codes, places.codes + i * places.rounding_bytes);
  }
  at(partials_, places.partials);
  at(expert_groups_.order, places.expert_order);
  at(expert_groups_.tiles, places.expert_tiles);
  at(expert_ranks_, places.expert_ranks);
  at(route_counter_, places.counters);
  attention_counters_ = route_counter_ + 1;
  space().fill(DevicePointer<std::uint32_t>(route_counter_).as<std::byte>(), std::byte{0},
               places.counter_bytes);
  const PinnedPlaces of_host = pinned_places_of(plan, places, kBegunInputs);
  told_ = reinterpret_cast<std::int64_t*>(pinned_.get() + of_host.told);
  lists_ = reinterpret_cast<device::ListedLogit*>(pinned_.get() + of_host.lists);
  input_places_ = pinned_.get() + of_host.inputs;
  input_bytes_ = places.hidden;
  *told_ = 0;
}

// Nobody waits: each batch has a place of its own until somebody does.
void CudaExecutor::prepare_inputs() {
  const std::span<const Position> positions = batch().positions;
  const std::span<const TokenId> ids = batch().ids;
  inputs_ = {};
  if (positions.empty()) return;
  KAKEYA_CHECK(batch().rows() <= plan_.max_rows);
  static_assert(sizeof(Position) == sizeof(*positions_) && sizeof(TokenId) == sizeof(*ids_));
  if (begun_inputs_ == kBegunInputs) {
    flush();
    if (const Status waited = wait(); !waited) fail(waited.error());
  }
  std::byte* const place = input_places_ + begun_inputs_++ * input_bytes_;
  const auto at = [&](const void* of_device) {
    return place + (static_cast<const std::byte*>(of_device) - scratch_.data());
  };
  std::memcpy(at(pass_number_), &++last_number_, sizeof(last_number_));
  std::memcpy(at(positions_), positions.data(), positions.size_bytes());
  std::memcpy(at(ids_), ids.data(), ids.size_bytes());
  inputs_ = {.from = reinterpret_cast<const std::int64_t*>(at(pass_number_)),
             .ids_from = reinterpret_cast<const std::int32_t*>(at(ids_)),
             .to = pass_number_,
             .ids = ids_,
             .count = 1 + std::ssize(positions),
             .num_ids = std::ssize(ids)};
}

void CudaExecutor::take_inputs() {
  if (inputs_.count == 0) return;
  const device::TakeInputsParams parameters = std::exchange(inputs_, {});
  launches_->record(Kernel::take_inputs,
                    element_shape(std::max(parameters.count, parameters.num_ids), 1), &parameters);
}

void CudaExecutor::tell_host() {
  last_told_ = last_number_;
  const device::TellHostParams parameters = {pass_number_, told_};
  record(Kernel::tell_host, {}, &parameters);
}

// Outside of a pass with a key: takes the list that began with the same launch, or the one that was
// not used for longest.
void CudaExecutor::record(Kernel kernel, const LaunchShape& shape, const void* parameters) {
  if (launches_ == nullptr) {
    const auto found = std::ranges::find_if(recordings_, [&](const Recording& recording) {
      return recording.key.network == nullptr &&
             recording.launches.begins_with(kernel, shape, parameters);
    });
    use(found != recordings_.end() ? *found : give_recording());
  }
  take_inputs();
  launches_->record(kernel, shape, parameters);
}

void CudaExecutor::flush() {
  if (launches_ == nullptr) return;
  open_ = nullptr;  // its launches are not one list
  launches_->end_again();
  const Status launched =
      failure_ ? driver_.launch(fused_.of(*launches_, batch().rows())) : Status();
  if (!launched) fail(launched.error());
  launches_ = nullptr;
}

void CudaExecutor::fail(Error error) {
  if (failure_) failure_ = Unexpected(std::move(error));
}

Status CudaExecutor::wait() {
  ++waits_;
  begun_inputs_ = 0;
  return driver_.synchronize();
}

Status CudaExecutor::await() {
  ++waits_;
  begun_inputs_ = 0;
  return driver_.await(*told_, last_told_);
}

Status CudaExecutor::end(std::span<const ConstRows> read) {
  close_pass();
  remembers_rounded_ = false;
  list_logits(read);
  if (!read.empty() || !failure_) return finish();
  // The next pass may be recorded while this one runs.
  flush();
  return failure_ ? Status() : finish();
}

// Waits also for a pass that failed: nothing of it may run on into the next one.
Status CudaExecutor::finish() {
  const bool tells = last_told_ != last_number_;
  if (tells) tell_host();
  flush();
  const Status all = tells && failure_ ? await() : wait();
  if (!all || !failure_) listed_rows_ = {};
  if (failure_) return all;
  return std::exchange(failure_, {});
}

void CudaExecutor::embed(const Matrix& table, float scale, Rows out) {
  const CudaMatrix& matrix = as_cuda(table);
  const std::span<const TokenId> ids = batch().ids;
  if (const TensorView* view = matrix.table()) {
    staged_.resize(static_cast<std::size_t>(out.count * out.width));
    float* to = staged_.data();
    for (std::int64_t t = 0; t < out.count; ++t, to += out.width) {
      copy_to_f32(*view, ids[static_cast<std::size_t>(t)], 0, out.width, to);
    }
    for (float& value : staged_) value = scale * value;
    upload(space(), std::span<const float>(staged_), out.data);
    return;
  }
  const device::EmbedParams parameters = {matrix.weight(), ids_, scale, out.count,
                                          out.data.address()};
  launch(Kernel::embed, element_shape(out.width, out.count), &parameters);
}

void CudaExecutor::rms_norm(ConstRows x, DevicePointer<const float> weight, float eps, Rows out) {
  const device::NormParams parameters = {x.data.address(), weight.address(), eps,
                                         x.count,          x.width,          out.data.address()};
  launch(Kernel::rms_norm, {x.count, 1, device::kNormSegments * dev::kWarp, device::kNormSegments},
         &parameters);
}

void CudaExecutor::gated_multiply(ConstRows gate,
                                  DevicePointer<const float> other,
                                  std::int64_t other_stride,
                                  GateActivation activation,
                                  Rows out) {
  const device::GateParams parameters = {
      gate.data.address(), other.address(), other_stride,      activation == GateActivation::kSilu,
      gate.count,          gate.width,      out.data.address()};
  launch(Kernel::gate, element_shape(gate.width, gate.count), &parameters);
}

void CudaExecutor::gather_logit_rows(ConstRows x, Rows out) {
  std::int64_t to = 0;
  for (const Segment& segment : batch().segments) {
    const std::int64_t from = segment.first_row + segment.rows - segment.logit_rows;
    space().copy((x.data + from * x.width).as<const std::byte>(),
                 (out.data + to * x.width).as<std::byte>(),
                 static_cast<std::uint64_t>(segment.logit_rows * x.width) * sizeof(float));
    to += segment.logit_rows;
  }
}

void CudaExecutor::route(ConstRows logits,
                         DevicePointer<const float> per_expert_scale,
                         Routing routing) {
  const device::RouteParams parameters = {logits.data.address(),
                                          logits.width,
                                          per_expert_scale.address(),
                                          routing.top_k,
                                          routing.experts.address(),
                                          routing.weights.address(),
                                          route_counter_};
  const device::RouteWords words(logits.width);
  launch(Kernel::route,
         {logits.count, 1, device::kRouteThreads, static_cast<std::uint32_t>(words.all())},
         &parameters);
}

void CudaExecutor::add(ConstRows a, ConstRows b, float scale, Rows out) {
  const device::AddParams parameters = {a.data.address(), b.data.address(), scale,
                                        a.count * a.width, out.data.address()};
  launch(Kernel::add, element_shape(parameters.size, 1), &parameters);
}

void CudaExecutor::add_vector(Rows x, ConstVector vector) {
  const device::AddVectorParams parameters = {x.data.address(), vector.data.address(), x.count,
                                              x.width};
  launch_product(Kernel::add_vector, element_shape(x.width, x.count), &parameters, x);
}

void CudaExecutor::convolve(ConstRows x, const RowConvolution& convolution, Rows out) {
  for (const Segment& segment : batch().segments) {
    const device::ConvolveParams parameters = {
        rows_from(x, segment.first_row, segment.rows).data.address(),
        segment.rows,
        x.width,
        convolution.base.data.address(),
        rows_from(convolution.own, segment.first_row, segment.rows).data.address(),
        convolution.own.width,
        convolution.column,
        convolution.taps,
        convolution.group,
        rows_from(out, segment.first_row, segment.rows).data.address()};
    launch(Kernel::convolve, element_shape(x.width, segment.rows), &parameters);
  }
}

void CudaExecutor::softcap(Rows x, float cap) {
  const device::SoftcapParams parameters = {x.data.address(), cap, x.count * x.width};
  launch(Kernel::softcap, element_shape(parameters.size, 1), &parameters);
}

void CudaExecutor::copy_columns(ConstRows x,
                                DevicePointer<float> out,
                                std::int64_t out_width,
                                std::int64_t column) {
  const device::CopyColumnsParams parameters = {x.data.address(), x.count,   x.width,
                                                out.address(),    out_width, column};
  launch(Kernel::copy_columns, element_shape(x.width, x.count), &parameters);
}

}  // namespace kakeya::cuda
