// Taskflow and oneTBB's flow graph behind one C interface. A graph is given by the predecessors of each task, as
// offsets into one list; it is built once and replayed as often as wanted. Exceptions become messages.

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <oneapi/tbb/flow_graph.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/version.h>
#include <taskflow/taskflow.hpp>

namespace {

using Body = void (*)(const void* context, std::uint32_t task);

struct Peer {
  // What the tasks of this replay call, through one pointer each.
  const Body* bodies = nullptr;
  const void* context = nullptr;

  virtual ~Peer() = default;
  virtual void replay() = 0;

  void call(std::uint32_t task) const { bodies[task](context, task); }
};

struct Taskflow final : Peer {
  tf::Executor executor;
  tf::Taskflow graph;

  Taskflow(std::uint32_t threads, std::uint32_t tasks, const std::uint32_t* offsets, const std::uint32_t* predecessors)
      : executor(threads) {
    std::vector<tf::Task> nodes;
    nodes.reserve(tasks);
    for (std::uint32_t task = 0; task < tasks; ++task) {
      nodes.push_back(graph.emplace([this, task] { call(task); }));
    }
    for (std::uint32_t task = 0; task < tasks; ++task) {
      for (std::uint32_t at = offsets[task]; at < offsets[task + 1]; ++at) {
        nodes[predecessors[at]].precede(nodes[task]);
      }
    }
  }

  void replay() override { executor.run(graph).wait(); }
};

struct Tbb final : Peer {
  using Message = tbb::flow::continue_msg;
  using Node = tbb::flow::continue_node<Message>;

  tbb::task_arena arena;
  std::unique_ptr<tbb::flow::graph> graph;
  std::deque<Node> nodes;
  std::vector<Node*> roots;

  Tbb(std::uint32_t threads, std::uint32_t tasks, const std::uint32_t* offsets, const std::uint32_t* predecessors)
      : arena(static_cast<int>(threads)) {
    // A graph runs in the arena that it is made in.
    arena.execute([&] { graph = std::make_unique<tbb::flow::graph>(); });
    for (std::uint32_t task = 0; task < tasks; ++task) {
      nodes.emplace_back(*graph, [this, task](const Message& message) {
        call(task);
        return message;
      });
    }
    for (std::uint32_t task = 0; task < tasks; ++task) {
      if (offsets[task] == offsets[task + 1]) {
        roots.push_back(&nodes[task]);
      }
      for (std::uint32_t at = offsets[task]; at < offsets[task + 1]; ++at) {
        tbb::flow::make_edge(nodes[predecessors[at]], nodes[task]);
      }
    }
  }

  void replay() override {
    arena.execute([this] {
      // One thread that starts them all would be what is measured.
      tbb::parallel_for(std::size_t{0}, roots.size(), [this](std::size_t root) { roots[root]->try_put(Message()); });
      graph->wait_for_all();
    });
  }
};

thread_local std::string failure;

template <typename Work>
auto caught(Work work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::exception& error) {
    failure = error.what();
  } catch (...) {
    failure = "an exception of an unknown type";
  }
  return {};
}

}  // namespace

extern "C" {

// A graph for 0, Taskflow, or 1, oneTBB; null where that failed.
Peer* peer_new(
  std::uint32_t which,
  std::uint32_t threads,
  std::uint32_t tasks,
  const std::uint32_t* offsets,
  const std::uint32_t* predecessors
) {
  return caught([&]() -> Peer* {
    if (which == 0) {
      return new Taskflow(threads, tasks, offsets, predecessors);
    }
    return new Tbb(threads, tasks, offsets, predecessors);
  });
}

// Runs all tasks once and returns when they have ended; false where that failed.
bool peer_replay(Peer* peer, const Body* bodies, const void* context) {
  return caught([&] {
    peer->bodies = bodies;
    peer->context = context;
    peer->replay();
    return true;
  });
}

void peer_free(Peer* peer) { delete peer; }

// Of the last call of this thread that failed; valid until the next one.
const char* peer_failure() { return failure.c_str(); }

const char* peer_version(std::uint32_t which) { return which == 0 ? tf::version() : TBB_runtime_version(); }
}
