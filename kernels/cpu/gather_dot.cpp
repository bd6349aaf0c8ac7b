// Each thread gathers rows of its own KV heads at random positions and multiplies them with a query, as a CPU does when
// it scores recalled keys. run: number of contiguous rows.
#include <algorithm>

#include "cpu/all.hpp"
#include "cpu/attend.hpp"
#include "cpu/data.hpp"
#include "harness/host.hpp"
#include "harness/pool.hpp"

namespace kvcast::kernels {

namespace {

void score_rows(const std::uint16_t* keys, const float* query, const std::uint32_t* ids, std::size_t n, std::size_t dim,
                float* scores) {
  for (std::size_t i = 0; i < n; ++i) {
    if (i + kRowsAhead < n) prefetch_row(keys + ids[i + kRowsAhead] * dim, dim);
    dot_rows<1>(query, keys + ids[i] * dim, dim, &scores[i]);
  }
}

void check(State& state, const Rows& keys, const std::vector<float>& query, const std::vector<std::uint32_t>& ids,
           std::size_t dim, const std::vector<float>& scores) {
  std::vector<float> expected(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    double sum = 0;
    for (std::size_t j = 0; j < dim; ++j) sum += double{query[j]} * double{bf16_value(keys[ids[i] * dim + j])};
    expected[i] = static_cast<float>(sum);
  }
  state.compare("scores", scores, expected, 1e-5);
}

void run(State& state) {
  const std::int64_t threads = state.integer("threads");
  if (too_many_threads(state.machine(), threads)) return state.skip("more threads than cores");
  const std::size_t dim = static_cast<std::size_t>(state.integer("dim"));
  if (state.integer("rows") > 0xFFFFFFFF) return state.skip("rows are numbered with 32 bits");
  const std::uint32_t rows = static_cast<std::uint32_t>(state.integer("rows"));
  if (too_large(state.machine(), 2.0 * static_cast<double>(rows) * static_cast<double>(dim)))
    return state.skip("the table does not fit in memory");
  const std::uint32_t run_length = static_cast<std::uint32_t>(state.integer("run"));
  const std::uint32_t each = static_cast<std::uint32_t>(state.integer("gathered")) / run_length * run_length;
  if (each == 0 || each * static_cast<std::uint64_t>(threads) > rows)
    return state.skip("more rows gathered than there are");
  Pool pool(static_cast<int>(threads));
  const Rows& keys = noise_table(3, std::size_t{rows} * dim, pool);
  const std::vector<float> query = normals(4, dim);
  const std::uint32_t gathered = each * static_cast<std::uint32_t>(threads);
  const std::size_t calls = fresh_calls(state, rows, gathered);
  const std::vector<std::uint32_t> ids = random_runs(5, rows, gathered * static_cast<std::uint32_t>(calls), run_length);
  std::vector<float> scores(gathered, -1.0f);
  std::size_t turn = 0;
  const auto call = [&] {
    turn = (turn + 1) % calls;
    pool.run([&](int t) {
      const std::size_t first = static_cast<std::size_t>(t) * each;
      score_rows(keys.data(), query.data(), &ids[turn * gathered + first], each, dim, &scores[first]);
    });
  };
  const double elements = static_cast<double>(gathered) * static_cast<double>(dim);
  state.moves(elements * 2, Resource::kDram);
  state.work("flops", elements * 2);
  state.work("rows", static_cast<double>(gathered));
  if (!state.checking()) return measure_host(state, call, &pool);
  call();
  check(state, keys, query, ids, dim, scores);
}

}  // namespace

Bench cpu_gather_dot(const Machine& machine) {
  // Four times all last-level caches, and a context's keys of one head: the rows of a smaller table would share page
  // tables.
  const std::int64_t rows = static_cast<std::int64_t>(std::clamp(4 * machine.llc_all_bytes, 64e6, 2e9)) / 256;
  constexpr std::int64_t kContext = 65536;
  return {"cpu_gather_dot",
          "rows of bfloat16 gathered at random in runs, one dot product each; gathered rows are for each thread",
          {numbers("dim", {128}), numbers("rows", {kContext, rows}), numbers("gathered", {1024, 4096}),
           numbers("run", {1, 2, 4, 8, 16, 32, 64}), numbers("threads", doubling(machine.cores))},
          {numbers("dim", {1, 64, 128, 131}), numbers("rows", {1000}), numbers("gathered", {64}),
           numbers("run", {1, 8}), numbers("threads", {1, 2})},
          {Mode::kCold},
          run};
}

}  // namespace kvcast::kernels
