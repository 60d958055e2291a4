// Graphs of the stand-in for NVIDIA's library: one chain of kernels each.
#include <algorithm>
#include <memory>
#include <utility>

#include "backend/fake_library.h"

using namespace kakeya;              // NOLINT
using namespace kakeya::cuda;        // NOLINT
using namespace kakeya::cuda::fake;  // NOLINT
using libcuda::Code;

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

// One chain of kernels, whose edges may come later.
Code cuGraphAddKernelNode_v2(libcuda::GraphNode** node,
                             libcuda::Graph* graph,
                             libcuda::GraphNode* const* after,
                             std::size_t count,
                             const libcuda::KernelNode* what) {
  const Call call("cuGraphAddKernelNode");
  if (call.fails()) return call.code();
  auto& handle = *reinterpret_cast<GraphHandle*>(graph);
  auto& nodes = handle.nodes;
  const bool is_behind_the_last =
      !nodes.empty() && count == 1 &&
      *after == reinterpret_cast<libcuda::GraphNode*>(nodes.back().get());
  if (count > 0 && !is_behind_the_last) {
    return library().misuse(kInvalidValue, "a kernel that waits for another one than the last");
  }
  handle.edges += count;
  const auto& kernel = *reinterpret_cast<KernelHandle*>(what->function);
  nodes.push_back(
      std::make_unique<NodeHandle>(NodeHandle{*what, handed_to(kernel, what->parameters)}));
  *node = reinterpret_cast<libcuda::GraphNode*>(nodes.back().get());
  return kSuccess;
}

Code cuGraphAddDependencies_v2(libcuda::Graph* graph,
                               libcuda::GraphNode* const* from,
                               libcuda::GraphNode* const* to,
                               const libcuda::Edge* edges,
                               std::size_t count) {
  const Call call("cuGraphAddDependencies");
  if (call.fails()) return call.code();
  auto& handle = *reinterpret_cast<GraphHandle*>(graph);
  const auto& nodes = handle.nodes;
  const auto node = [&](std::size_t back) {
    return reinterpret_cast<libcuda::GraphNode*>(nodes[nodes.size() - back].get());
  };
  if (count != 1 || nodes.size() < 2 || *from != node(2) || *to != node(1)) {
    return library().misuse(kInvalidValue, "an edge that is not between the last two kernels");
  }
  if (library().settings.capability < 90 || edges->from_port != 1 || edges->to_port != 0 ||
      edges->type != 1) {
    return library().misuse(kInvalidValue, "an edge that this card does not have");
  }
  ++handle.edges;
  ++library().record.early_starts;
  return kSuccess;
}

Code cuGraphInstantiateWithFlags(libcuda::ReadyGraph** ready,
                                 libcuda::Graph* graph,
                                 unsigned long long flags) {
  const Call call("cuGraphInstantiate");
  if (call.fails()) return call.code();
  if (flags != 0) return library().misuse(kInvalidValue, "a graph with flags");
  const auto& handle = *reinterpret_cast<GraphHandle*>(graph);
  if (handle.edges + 1 != handle.nodes.size()) {
    return library().misuse(kInvalidValue, "kernels that wait for no other");
  }
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
  now = {*what, handed_to(*reinterpret_cast<KernelHandle*>(what->function), what->parameters)};
  return kSuccess;
}

Code cuGraphLaunch(libcuda::ReadyGraph* ready, libcuda::Stream* stream) {
  const Call call("cuGraphLaunch");
  if (call.fails()) return call.code();
  if (!is_stream(stream)) return library().misuse(kInvalidValue, "a graph on no stream");
  ++library().record.graph_launches;
  for (const NodeHandle& node : reinterpret_cast<ReadyGraphHandle*>(ready)->now) {
    const Code code = put_kernel_off(node.what, node.parameters);
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
