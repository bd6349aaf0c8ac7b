// Cost of handing work to threads and joining them, with nothing to do in between.
#include <atomic>

#include "cpu/all.hpp"
#include "cpu/data.hpp"
#include "harness/host.hpp"
#include "harness/pool.hpp"

namespace kvcast::kernels {

namespace {

struct alignas(64) Count {
  std::int64_t calls = 0;
};

void run(State& state) {
  const std::int64_t threads = state.integer("threads");
  if (too_many_threads(state.machine(), threads)) return state.skip("more threads than cores");
  if (state.word("wait") != "spin") throw UsageError("wait: '" + state.word("wait") + "' is not spin");
  Pool pool(static_cast<int>(threads));
  std::vector<Count> counts(static_cast<std::size_t>(threads));
  std::int64_t forks = 0;
  const auto call = [&] {
    ++forks;
    pool.run([&](int t) { ++counts[static_cast<std::size_t>(t)].calls; });
  };
  state.work("forks", 1);
  if (!state.checking()) return measure_host(state, call);
  for (int i = 0; i < 1000; ++i) call();
  bool all = true;
  for (const Count& c : counts) all = all && c.calls == forks;
  state.require(all, "every thread ran every task once");
}

}  // namespace

Bench cpu_fork_join(const Machine& machine) {
  return {"cpu_fork_join",
          "an empty task on each thread of a pool, and back",
          {words("wait", {"spin"}), numbers("threads", {machine.cores})},
          {numbers("threads", {1, 2, 3})},
          {Mode::kBatch},
          run};
}

}  // namespace kvcast::kernels
