// Graphs of the stand-in for NVIDIA's library. Their kernels run in an order that a card may take
// and that is far from the one in which they were added: the last one that need not wait is first.
#include <algorithm>
#include <memory>
#include <utility>

#include "backend/fake_library.h"

using namespace kakeya;              // NOLINT
using namespace kakeya::cuda;        // NOLINT
using namespace kakeya::cuda::fake;  // NOLINT
using libcuda::Code;

namespace {

// False if there is no such node.
bool add_wait(const std::vector<std::unique_ptr<NodeHandle>>& nodes,
              const libcuda::GraphNode* before,
              NodeHandle& node) {
  const auto found = std::find_if(nodes.begin(), nodes.end(), [&](const auto& other) {
    return reinterpret_cast<const libcuda::GraphNode*>(other.get()) == before;
  });
  if (found == nodes.end()) return false;
  node.waits_for.push_back(static_cast<std::size_t>(found - nodes.begin()));
  return true;
}

// All nodes, the last one that waits for none that has not run always next.
std::vector<std::size_t> late_order(const std::vector<NodeHandle>& nodes) {
  std::vector<std::size_t> order;
  std::vector<bool> has_run(nodes.size());
  while (order.size() < nodes.size()) {
    for (std::size_t i = nodes.size(); i-- > 0;) {
      const auto& waits = nodes[i].waits_for;
      const bool is_ready = !has_run[i] && std::all_of(waits.begin(), waits.end(),
                                                       [&](std::size_t w) { return has_run[w]; });
      if (!is_ready) continue;
      has_run[i] = true;
      order.push_back(i);
      break;
    }
  }
  return order;
}

}  // namespace

extern "C" {

Code cuGraphCreate(libcuda::Graph** graph, unsigned flags) {
  const Call call("cuGraphCreate");
  if (call.fails()) return call.code();
  if (flags != 0) return library().misuse(kInvalidValue, "a graph with flags");
  ++library().record.objects;
  *graph = reinterpret_cast<libcuda::Graph*>(new GraphHandle);
  return kSuccess;
}

Code cuGraphDestroy(libcuda::Graph* graph) {
  const Call call("cuGraphDestroy");
  --library().record.objects;
  delete reinterpret_cast<GraphHandle*>(graph);
  return call.code();
}

Code cuGraphAddKernelNode_v2(libcuda::GraphNode** node,
                             libcuda::Graph* graph,
                             libcuda::GraphNode* const* after,
                             std::size_t count,
                             const libcuda::KernelNode* what) {
  const Call call("cuGraphAddKernelNode");
  if (call.fails()) return call.code();
  auto& nodes = reinterpret_cast<GraphHandle*>(graph)->nodes;
  const auto& kernel = *reinterpret_cast<KernelHandle*>(what->function);
  auto made =
      std::make_unique<NodeHandle>(NodeHandle{*what, handed_to(kernel, what->parameters), {}});
  for (std::size_t i = 0; i < count; ++i) {
    if (!add_wait(nodes, after[i], *made)) {
      return library().misuse(kInvalidValue, "a kernel that waits for one of another graph");
    }
  }
  nodes.push_back(std::move(made));
  *node = reinterpret_cast<libcuda::GraphNode*>(nodes.back().get());
  return kSuccess;
}

// Edges to the kernel that was added last.
Code cuGraphAddDependencies_v2(libcuda::Graph* graph,
                               libcuda::GraphNode* const* from,
                               libcuda::GraphNode* const* to,
                               const libcuda::Edge* edges,
                               std::size_t count) {
  const Call call("cuGraphAddDependencies");
  if (call.fails()) return call.code();
  auto& nodes = reinterpret_cast<GraphHandle*>(graph)->nodes;
  for (std::size_t i = 0; i < count; ++i) {
    if (nodes.empty() || to[i] != reinterpret_cast<libcuda::GraphNode*>(nodes.back().get()) ||
        from[i] == to[i] || !add_wait(nodes, from[i], *nodes.back())) {
      return library().misuse(kInvalidValue, "an edge that is not to the last kernel");
    }
    if (library().settings.capability < 90 || edges[i].from_port != 1 || edges[i].to_port != 0 ||
        edges[i].type != 1) {
      return library().misuse(kInvalidValue, "an edge that this card does not have");
    }
    ++library().record.early_starts;
  }
  return kSuccess;
}

Code cuGraphInstantiateWithFlags(libcuda::ReadyGraph** ready,
                                 libcuda::Graph* graph,
                                 unsigned long long flags) {
  const Call call("cuGraphInstantiate");
  if (call.fails()) return call.code();
  if (flags != 0) return library().misuse(kInvalidValue, "a graph with flags");
  const auto& handle = *reinterpret_cast<GraphHandle*>(graph);
  auto made = std::make_unique<ReadyGraphHandle>();
  for (const auto& node : handle.nodes) {
    made->nodes.push_back(node.get());
    made->now.push_back(*node);
  }
  ++library().record.objects;
  ++library().record.graphs;
  *ready = reinterpret_cast<libcuda::ReadyGraph*>(made.release());
  return kSuccess;
}

Code cuGraphExecKernelNodeSetParams_v2(libcuda::ReadyGraph* ready,
                                       libcuda::GraphNode* node,
                                       const libcuda::KernelNode* what) {
  const Call call("cuGraphExecKernelNodeSetParams");
  if (call.fails()) return call.code();
  auto& graph = *reinterpret_cast<ReadyGraphHandle*>(ready);
  const auto found =
      std::find(graph.nodes.begin(), graph.nodes.end(), reinterpret_cast<const NodeHandle*>(node));
  if (found == graph.nodes.end()) return library().misuse(kInvalidValue, "a node of another graph");
  NodeHandle& now = graph.now[static_cast<std::size_t>(found - graph.nodes.begin())];
  if (now.what.function != what->function) {
    return library().misuse(kInvalidValue, "another kernel in a graph that is ready");
  }
  ++library().record.set_nodes;
  now.what = *what;
  now.parameters = handed_to(*reinterpret_cast<KernelHandle*>(what->function), what->parameters);
  return kSuccess;
}

Code cuGraphLaunch(libcuda::ReadyGraph* ready, libcuda::Stream* stream) {
  const Call call("cuGraphLaunch");
  if (call.fails()) return call.code();
  if (!is_stream(stream)) return library().misuse(kInvalidValue, "a graph on no stream");
  ++library().record.graph_launches;
  const auto& nodes = reinterpret_cast<ReadyGraphHandle*>(ready)->now;
  for (const std::size_t i : late_order(nodes)) {
    const Code code = put_kernel_off(nodes[i].what, nodes[i].parameters);
    if (code != kSuccess) return code;
  }
  return kSuccess;
}

Code cuGraphExecDestroy(libcuda::ReadyGraph* ready) {
  const Call call("cuGraphExecDestroy");
  --library().record.objects;
  delete reinterpret_cast<ReadyGraphHandle*>(ready);
  return call.code();
}

}  // extern "C"
