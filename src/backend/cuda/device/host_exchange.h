// Inputs of a pass and word of its end, by way of memory that host and card reach: a copy by the
// library would take microseconds in front of a pass and behind it.
#pragma once

#include "backend/cuda/device/rows.h"

namespace kakeya::cuda::device {

// Others read positions before they wait: they start when these have been written. Grid: the larger
// count / kElementThreads.
KAKEYA_DEVICE void take_inputs(const TakeInputsParams& p) {
  dev::wait_for_previous();
  const std::int64_t i = own_element();
  if (i < p.count) dev::Global<std::int64_t>(p.to).store(i, dev::load_of_host(p.from + i));
  if (i < p.num_ids) dev::Global<std::int32_t>(p.ids).store(i, dev::load_of_host(p.ids_from + i));
  dev::publish_writes();
}

// One block.
KAKEYA_DEVICE void tell_host(const TellHostParams& p) {
  if (dev::thread() != 0) return;
  dev::tell_host(p.told, dev::Global<const std::int64_t>(p.number).load(0));
}

}  // namespace kakeya::cuda::device
