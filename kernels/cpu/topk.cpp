// The k largest of n scores, lower index first among equals: scores become integers that order as floats do, joined
// with the index, so that introselect (std::nth_element) needs no tie rule of its own.
#include <algorithm>
#include <cmath>

#include "cpu/all.hpp"
#include "cpu/data.hpp"
#include "cpu/select.hpp"
#include "harness/host.hpp"
#include "harness/pool.hpp"
#include "reference/attention.hpp"

namespace kvcast::kernels {

namespace {

constexpr std::size_t kScores = std::size_t{1} << 21, kMostSets = 1024;

void run(State& state) {
  const std::int64_t threads = state.integer("threads");
  if (too_many_threads(state.machine(), threads)) return state.skip("more threads than cores");
  const std::size_t n = static_cast<std::size_t>(state.integer("n")), k = static_cast<std::size_t>(state.integer("k"));
  const std::size_t rows = static_cast<std::size_t>(state.integer("rows"));
  if (k > n || n == 0) return state.skip("k is larger than n");
  // Every call gets other scores: a branch predictor learns the comparisons of a few thousand scores.
  const std::size_t sets = state.checking() ? 1 : std::clamp<std::size_t>(kScores / (rows * n), 1, kMostSets);
  std::vector<float> scores = normals(21, sets * rows * n);
  // Ties on purpose when results are compared.
  if (state.checking()) {
    for (float& s : scores) s = std::nearbyint(s * 8.0f);
  }
  std::vector<std::uint32_t> ids(rows * k, ~0u);
  std::vector<std::vector<std::uint64_t>> keys(static_cast<std::size_t>(threads), std::vector<std::uint64_t>(n));
  Pool pool(static_cast<int>(threads));
  std::size_t set = 0;
  const auto call = [&] {
    set = (set + 1) % sets;
    const float* const own = &scores[set * rows * n];
    pool.run([&](int t) {
      for (std::size_t r = static_cast<std::size_t>(t); r < rows; r += static_cast<std::size_t>(threads)) {
        select_row(own + r * n, n, k, keys[static_cast<std::size_t>(t)].data(), &ids[r * k]);
      }
    });
  };
  state.moves(static_cast<double>(rows) * (4.0 * static_cast<double>(n) + 4.0 * static_cast<double>(k)),
              Resource::kCache);
  state.work("elements", static_cast<double>(rows * n));
  if (!state.checking()) return measure_host(state, call);
  call();
  bool same = true;
  for (std::size_t r = 0; r < rows; ++r) {
    std::vector<std::uint32_t> expected = reference::top_k(&scores[r * n], n, k);
    std::sort(expected.begin(), expected.end());
    std::sort(&ids[r * k], &ids[r * k] + k);
    same = same && std::equal(expected.begin(), expected.end(), &ids[r * k]);
  }
  state.require(same, "the indices of the k largest");
}

}  // namespace

Bench cpu_topk(const Machine& machine) {
  return {
      "cpu_topk",
      "indices of the k largest of n floats, for each of the rows",
      {numbers("n", {256, 1024, 4096, 16384, 65536, 131072}), numbers("k", {64, 512, 2048}), numbers("rows", {1, 8}),
       numbers("threads", {1, machine.cores > 1 ? machine.cores : 2})},
      {numbers("n", {1, 64, 1000}), numbers("k", {1, 63, 1000}), numbers("rows", {1, 3}), numbers("threads", {1, 2})},
      {Mode::kBatch},
      run};
}

}  // namespace kvcast::kernels
