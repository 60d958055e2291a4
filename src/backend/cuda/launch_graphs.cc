#include "backend/cuda/launch_graphs.h"

#include <algorithm>

namespace kakeya::cuda {
namespace {

using libcuda::kSuccess;

// A node as the library takes it. It copies what the kernel is handed.
struct NodeOf {
  NodeOf(const LaunchList& launches,
         std::size_t i,
         libcuda::Function* function,
         const CardLaunches& card)
      : arguments{const_cast<void*>(launches.parameters(i))} {
    const LaunchShape& shape = launches.shape(i);
    node.function = function;
    node.blocks_x = static_cast<unsigned>(shape.blocks_x);
    node.blocks_y = static_cast<unsigned>(shape.blocks_y);
    node.threads_x = static_cast<unsigned>(shape.threads);
    node.shared_bytes = card.shared_bytes(shape);
    node.parameters = arguments;
  }
  NodeOf(const NodeOf&) = delete;
  NodeOf& operator=(const NodeOf&) = delete;

  void* arguments[1];
  libcuda::KernelNode node;
};

// True if a card can take the launch. Others are left to single launches, which report the error.
bool is_possible(const LaunchShape& shape) {
  return shape.blocks_x <= Driver::kMostBlocksX && shape.blocks_y <= Driver::kMostBlocksY;
}

}  // namespace

bool LaunchGraphs::launch(const LaunchList& launches, libcuda::Stream* stream) {
  if (launches.size() < kLeastLaunches) return false;
  for (std::size_t i = 0; i < launches.size(); ++i) {
    if (!is_possible(launches.shape(i))) return false;
  }
  auto found = std::find_if(kept_.begin(), kept_.end(),
                            [&](const Kept& kept) { return kept.identity == launches.identity(); });
  if (found == kept_.end()) {
    found = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) {
      return kept.launches.has_equal_kernels(launches) && kept.launches.has_equal_shapes(launches);
    });
  }
  if (found == kept_.end()) {
    keep(launches);
    return false;
  }
  found->last_used = ++uses_;
  const bool is_made =
      found->graph != nullptr ? set_what_differs(*found, launches) : make(*found, launches);
  found->identity = launches.identity();
  found->change = launches.last_change();
  if (is_made && table_.launch_graph(found->ready, stream) == kSuccess) return true;
  forget(*found);
  return false;
}

// Keeps the launches, in the place of those that were not used for longest if there are many.
void LaunchGraphs::keep(const LaunchList& launches) {
  if (kept_.size() < kMostKept) {
    kept_.emplace_back();
  } else {
    std::iter_swap(
        std::min_element(kept_.begin(), kept_.end(),
                         [](const Kept& a, const Kept& b) { return a.last_used < b.last_used; }),
        kept_.end() - 1);
    forget(kept_.back());
  }
  kept_.back().launches = launches;
  kept_.back().last_used = ++uses_;
}

bool LaunchGraphs::add_node(Kept& kept,
                            const libcuda::KernelNode& what,
                            std::span<const std::uint32_t> waits_for) {
  std::vector<libcuda::GraphNode*> before;
  for (const std::uint32_t i : waits_for) before.push_back(kept.nodes[i]);
  const bool starts_early = card_.starts_early && !before.empty();
  libcuda::GraphNode* node = nullptr;
  libcuda::Code code = table_.add_kernel_node(&node, kept.graph, before.data(),
                                              starts_early ? 0 : before.size(), &what);
  if (code == kSuccess && starts_early) {
    const std::vector<libcuda::GraphNode*> nodes(before.size(), node);
    const std::vector<libcuda::Edge> edges(before.size(), libcuda::kEarlyStart);
    code = table_.add_edges(kept.graph, before.data(), nodes.data(), edges.data(), before.size());
  }
  if (code != kSuccess) return false;
  kept.nodes.push_back(node);
  return true;
}

bool LaunchGraphs::make(Kept& kept, const LaunchList& launches) {
  kept.launches = launches;
  if (table_.create_graph(&kept.graph, 0) != kSuccess) {
    kept.graph = nullptr;
    return false;
  }
  for (std::size_t i = 0; i < launches.size(); ++i) {
    const NodeOf what(launches, i, functions_[static_cast<std::size_t>(launches.kernel(i))], card_);
    if (!add_node(kept, what.node, launches.waits_for(i))) return false;
  }
  if (table_.prepare_graph(&kept.ready, kept.graph, 0) == kSuccess) return true;
  kept.ready = nullptr;
  return false;
}

bool LaunchGraphs::set_what_differs(Kept& kept, const LaunchList& launches) {
  const bool is_same = kept.identity == launches.identity();
  for (std::size_t i = 0; i < launches.size(); ++i) {
    if (is_same ? launches.change(i) <= kept.change : launches.has_equal_launch(kept.launches, i)) {
      continue;
    }
    const NodeOf what(launches, i, functions_[static_cast<std::size_t>(launches.kernel(i))], card_);
    if (table_.set_kernel_node(kept.ready, kept.nodes[i], &what.node) != kSuccess) return false;
    kept.launches.replace(i, launches, i);
  }
  return true;
}

// Destroys the graph; its place is free for another one.
void LaunchGraphs::forget(Kept& kept) {
  if (kept.ready != nullptr) table_.destroy_ready_graph(kept.ready);
  if (kept.graph != nullptr) table_.destroy_graph(kept.graph);
  kept = {};
}

void LaunchGraphs::clear() {
  for (Kept& kept : kept_) forget(kept);
  kept_.clear();
}

}  // namespace kakeya::cuda
