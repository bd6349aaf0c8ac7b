// Indices of the k largest of n scores of each row, in ascending order.
//
// Radix select, eight bits at a time from the top (as in RadiK, arXiv 2501.14336): a block keeps its scores in shared
// memory, a histogram finds the digit of the k-th largest, four passes fix its 32 bits. Then every score above it is
// written, and as many of those equal to it as are missing, lower indices first. A row that one block cannot hold is
// cut into slices; the k largest of every slice are the candidates of a second kernel.
#include "cuda/all.hpp"
#include "cuda/topk.cuh"
#include "reference/attention.hpp"

namespace kvcast::kernels {

namespace {

void run(State& state) {
  const int rows = as_int(state, "rows"), n = as_int(state, "n"), k = as_int(state, "k");
  if (k < 1 || k > n) return state.skip("k lies in 1 to n");
  if (TopkRun::slices_for(n, k) == 0) return state.skip("n times k is at most 2^28 for rows of more than 16384");
  std::vector<float> scores(as_size(rows) * as_size(n));
  for (std::size_t i = 0; i < scores.size(); ++i) {
    // Inputs for comparing results: many ties, and both zeros.
    scores[i] = state.checking() ? std::nearbyint(random_normal(75, i) * 4.0f) : random_normal(75, i);
  }
  const DeviceArray<float> in(scores);
  const DeviceArray<std::uint32_t> out(as_size(rows) * as_size(k));
  const TopkRun select(rows, n, k);
  const auto call = [&](Queue queue) { select(queue, in.data(), out.data()); };
  state.moves(4.0 * rows * (static_cast<double>(n) + k), Resource::kHbm);
  state.work("elements", static_cast<double>(rows) * n);
  state.work("launches", select.launches());
  run_and_wait(call);
  const std::vector<std::uint32_t> ids = out.host();
  bool same = true;
  for (int r = 0; r < (state.checking() ? rows : 1); ++r) {
    std::vector<std::uint32_t> expected = reference::top_k(&scores[as_size(r) * as_size(n)], as_size(n), as_size(k));
    std::sort(expected.begin(), expected.end());
    same = same && std::equal(expected.begin(), expected.end(),
                              ids.begin() + static_cast<std::ptrdiff_t>(as_size(r) * as_size(k)));
  }
  state.require(same, "the indices of the k largest in ascending order, lower ones among equals");
  if (!state.checking()) measure_device(state, call, {.launches = select.launches()});
}

}  // namespace

Bench topk(const Machine&) {
  return {"topk",
          "indices of the k largest of n floats, for each of the rows; n scores read and k indices written",
          {numbers("rows", {1, 8, 64}), numbers("n", {250, 1000, 4096, 16384, 65536, 131072}),
           numbers("k", {64, 256, 2048})},
          {numbers("rows", {1, 3}), numbers("n", {1, 33, 1000, 17000}), numbers("k", {1, 30, 1000, 2048})},
          {Mode::kCold},
          run,
          2};
}

}  // namespace kvcast::kernels
