// Indices of the k largest of n scores, for each row; one block for a row.
//
// Radix select, eight bits at a time from the top (as in RadiK, arXiv 2501.14336): a histogram in shared memory finds
// the digit of the k-th largest, four passes fix its 32 bits. A last pass writes all scores above it and those equal to
// it; if not all of the latter are selected, another pass writes the first of them in order of index. Rows that fit are
// kept in shared memory after the first read.
#include "cuda/all.hpp"
#include "cuda/topk.cuh"
#include "reference/attention.hpp"

namespace kvcast::kernels {

namespace {

void run(State& state) {
  const int rows = as_int(state, "rows"), n = as_int(state, "n"), k = as_int(state, "k");
  if (k < 1 || k > n) return state.skip("k lies in 1 to n");
  std::vector<float> scores(as_size(rows) * as_size(n));
  for (std::size_t i = 0; i < scores.size(); ++i) {
    // Inputs for comparing results: many ties, and both zeros.
    scores[i] = state.checking() ? std::nearbyint(random_normal(75, i) * 4.0f) : random_normal(75, i);
  }
  const DeviceArray<float> in(scores);
  const DeviceArray<std::uint32_t> out(as_size(rows) * as_size(k));
  const auto call = [&](Queue queue) {
    launch({as_unsigned(rows)}, kTopkThreads, topk_shared_bytes(n), queue, topk_kernel, in.data(), n, k, out.data());
  };
  state.moves(4.0 * rows * (static_cast<double>(n) + k), Resource::kHbm);
  state.work("elements", static_cast<double>(rows) * n);
  state.work("launches", 1);
  run_and_wait(call);
  std::vector<std::uint32_t> ids = out.host();
  bool same = true;
  for (int r = 0; r < (state.checking() ? rows : 1); ++r) {
    std::vector<std::uint32_t> expected = reference::top_k(&scores[as_size(r) * as_size(n)], as_size(n), as_size(k));
    std::sort(expected.begin(), expected.end());
    const auto first = ids.begin() + static_cast<std::ptrdiff_t>(as_size(r) * as_size(k));
    std::sort(first, first + k);
    same = same && std::equal(expected.begin(), expected.end(), first);
  }
  state.require(same, "the indices of the k largest, lower index first among equals");
  if (!state.checking()) measure_device(state, call);
}

}  // namespace

Bench topk(const Machine&) {
  return {"topk",
          "indices of the k largest of n floats, for each of the rows; n scores read and k indices written",
          {numbers("rows", {1, 8, 64}), numbers("n", {250, 1000, 4096, 16384, 65536, 131072}),
           numbers("k", {64, 256, 2048})},
          {numbers("rows", {1, 3}), numbers("n", {1, 33, 1000, 17000}), numbers("k", {1, 30, 1000})},
          {Mode::kCold},
          run,
          2};
}

}  // namespace kvcast::kernels
