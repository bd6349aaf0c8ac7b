// A reading stream over an array far larger than the caches.
#include <algorithm>
#include <memory>

#include "cpu/all.hpp"
#include "cpu/data.hpp"
#include "harness/host.hpp"
#include "harness/pool.hpp"

namespace kvcast::kernels {

namespace {

constexpr double kMostBytes = 4e9;

// Eight independent sums, so that the adder's latency does not bound the loads.
std::uint64_t sum_of(const std::uint64_t* data, std::size_t n) {
  std::uint64_t sums[8] = {};
  for (std::size_t i = 0; i + 8 <= n; i += 8) {
    for (std::size_t j = 0; j < 8; ++j) sums[j] += data[i + j];
  }
  std::uint64_t total = 0;
  for (const std::uint64_t s : sums) total += s;
  for (std::size_t i = n - n % 8; i < n; ++i) total += data[i];
  return total;
}

// First touched by the thread that will stream it: on NUMA machines each part is then in the thread's own memory.
std::unique_ptr<std::uint64_t[]> make_array(Pool& pool, std::size_t n) {
  std::unique_ptr<std::uint64_t[]> array(new std::uint64_t[n]);
  pool.split(n, [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) array[i] = random_bits(1, i);
  });
  return array;
}

void run(State& state) {
  const std::int64_t threads = state.integer("threads");
  if (too_many_threads(state.machine(), threads)) return state.skip("more threads than cores");
  if (state.word("op") != "read") throw UsageError("op: '" + state.word("op") + "' is not read");
  const std::size_t n = static_cast<std::size_t>(state.integer("bytes")) / 8;
  Pool pool(static_cast<int>(threads));
  const std::unique_ptr<std::uint64_t[]> array = make_array(pool, n);
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads) * 8);
  const auto call = [&] {
    pool.run([&](int t) {
      const std::size_t part = static_cast<std::size_t>(t), parts = static_cast<std::size_t>(threads);
      const std::size_t first = n * part / parts, count = n * (part + 1) / parts - first;
      sums[part * 8] = sum_of(&array[first], count);
    });
    keep(sums[0]);
  };
  state.moves(static_cast<double>(n) * 8, Resource::kDram);
  if (!state.checking()) return measure_host(state, call);
  call();
  std::uint64_t total = 0, expected = 0;
  for (const std::uint64_t s : sums) total += s;
  for (std::size_t i = 0; i < n; ++i) expected += array[i];
  state.require(total == expected, "the sum of the array");
}

}  // namespace

Bench cpu_dram(const Machine& machine) {
  // More than four times all last-level caches, within the available memory.
  const double bytes = std::clamp(4 * machine.llc_all_bytes, 64e6, std::min(kMostBytes, 0.2 * machine.dram_bytes));
  return {"cpu_dram",
          "streaming read of DRAM; bytes read",
          {words("op", {"read"}), numbers("bytes", {static_cast<std::int64_t>(bytes) / 4096 * 4096}),
           numbers("threads", doubling(machine.cores))},
          {numbers("bytes", {8, 8 * 1001}), numbers("threads", {1, 2, 3})},
          {Mode::kBatch},
          run};
}

}  // namespace kvcast::kernels
