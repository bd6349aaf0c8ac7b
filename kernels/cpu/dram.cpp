// Streams over arrays far larger than the caches. Non-temporal stores are left to the compiler and the library: a
// write here counts the bytes written, not the read that a write-allocating cache adds.
#include <algorithm>
#include <cstring>
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

struct Arrays {
  std::size_t n;
  std::unique_ptr<std::uint64_t[]> a, b;
};

// First touched by the thread that will stream it: on NUMA machines each part is then in the thread's own memory.
Arrays make_arrays(Pool& pool, std::size_t n) {
  Arrays arrays{n, std::unique_ptr<std::uint64_t[]>(new std::uint64_t[n]),
                std::unique_ptr<std::uint64_t[]>(new std::uint64_t[n])};
  pool.split(n, [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      arrays.a[i] = random_bits(1, i);
      arrays.b[i] = 0;
    }
  });
  return arrays;
}

void check(State& state, const std::string& op, const Arrays& arrays, std::uint64_t got) {
  std::uint64_t expected = 0;
  for (std::size_t i = 0; i < arrays.n; ++i) expected += arrays.a[i];
  if (op == "read") state.require(got == expected, "the sum of the array");
  bool same = true;
  for (std::size_t i = 0; i < arrays.n; ++i) same = same && arrays.b[i] == (op == "copy" ? arrays.a[i] : 7);
  if (op != "read") state.require(same, "every element written");
}

void run(State& state) {
  const std::int64_t threads = state.integer("threads");
  if (too_many_threads(state.machine(), threads)) return state.skip("more threads than cores");
  const std::string& op = state.word("op");
  const std::size_t n = static_cast<std::size_t>(state.integer("bytes")) / 8;
  if (op != "read" && op != "write" && op != "copy") throw UsageError("op: '" + op + "' is not read, write or copy");
  Pool pool(static_cast<int>(threads), true);
  const Arrays arrays = make_arrays(pool, n);
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads) * 8);
  const auto call = [&] {
    pool.run([&](int t) {
      const std::size_t part = static_cast<std::size_t>(t), parts = static_cast<std::size_t>(threads);
      const std::size_t first = n * part / parts, count = n * (part + 1) / parts - first;
      if (op == "read") sums[part * 8] = sum_of(&arrays.a[first], count);
      if (op == "write") std::fill_n(&arrays.b[first], count, std::uint64_t{7});
      if (op == "copy") std::memcpy(&arrays.b[first], &arrays.a[first], count * 8);
    });
    keep(sums[0]);
  };
  state.moves(static_cast<double>(n) * 8 * (op == "copy" ? 2 : 1), Resource::kDram);
  if (!state.checking()) return measure_host(state, call);
  call();
  std::uint64_t total = 0;
  for (const std::uint64_t s : sums) total += s;
  check(state, op, arrays, total);
}

}  // namespace

Bench cpu_dram(const Machine& machine) {
  // More than four times all last-level caches, within the available memory.
  const double bytes = std::clamp(4 * machine.llc_all_bytes, 64e6, std::min(kMostBytes, 0.2 * machine.dram_bytes));
  return {"cpu_dram",
          "streaming read, write or copy of DRAM; bytes read plus bytes written",
          {words("op", {"read", "write", "copy"}), numbers("bytes", {static_cast<std::int64_t>(bytes) / 4096 * 4096}),
           numbers("threads", doubling(machine.cores))},
          {numbers("bytes", {8, 8 * 1001}), numbers("threads", {1, 2, 3})},
          {Mode::kBatch},
          run};
}

}  // namespace kvcast::kernels
