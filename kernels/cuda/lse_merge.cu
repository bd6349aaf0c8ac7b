// Joins partial attentions (of splits, or of a GPU and a CPU part) by their log-sum-exp.
#include "cuda/all.hpp"
#include "cuda/attention_case.hpp"

namespace kvcast::kernels {

namespace {

void run(State& state) {
  const std::size_t rows = as_size(state.integer("rows")), parts = as_size(state.integer("parts"));
  const std::size_t dim = as_size(state.integer("dim"));
  if (dim == 0 || dim > 128) return state.skip("one thread for each dimension, at most 128");
  std::vector<float> partial(parts * rows * dim), lse(parts * rows);
  for (std::size_t i = 0; i < partial.size(); ++i) partial[i] = random_normal(61, i);
  for (std::size_t i = 0; i < lse.size(); ++i) lse[i] = 3 * random_normal(62, i);
  const DeviceArray<float> device_partial(partial), device_lse(lse), out_lse(rows);
  const DeviceArray<Half> out(rows * dim);
  const auto call = [&](Queue queue) {
    launch({static_cast<unsigned>(rows)}, static_cast<unsigned>(dim), 0, queue, merge_kernel, static_cast<int>(parts),
           static_cast<int>(rows), device_partial.data(), device_lse.data(), out.data(), out_lse.data());
  };
  state.moves(static_cast<double>(rows) * (static_cast<double>(parts) * (4.0 * static_cast<double>(dim) + 4) +
                                           2.0 * static_cast<double>(dim) + 4),
              Resource::kHbm);
  state.work("launches", 1);
  run_and_wait(call);
  std::vector<float> expected, expected_lse;
  for (std::size_t r = 0; r < rows && expected.size() < 100000; ++r) {
    reference::Attention sum{{&partial[r * dim], &partial[r * dim] + dim}, lse[r]};
    for (std::size_t p = 1; p < parts; ++p) {
      const float* part = &partial[(p * rows + r) * dim];
      sum = reference::merge(sum, {{part, part + dim}, lse[p * rows + r]});
    }
    expected.insert(expected.end(), sum.out.begin(), sum.out.end());
    expected_lse.push_back(sum.lse);
  }
  std::vector<float> got = floats_of(out), got_lse = out_lse.host();
  got.resize(expected.size());
  got_lse.resize(expected_lse.size());
  state.compare("merged", got, expected, 1e-3);
  state.compare("log-sum-exp", got_lse, expected_lse, 1e-5);
  if (!state.checking()) measure_device(state, call);
}

}  // namespace

Bench lse_merge(const Machine&) {
  return {"lse_merge",
          "partial attention results joined by their log-sum-exp; floats in, fp16 out",
          {numbers("rows", {32, 256, 2048}), numbers("parts", {2, 8, 32}), numbers("dim", {128})},
          {numbers("rows", {1, 5}), numbers("parts", {1, 2, 7}), numbers("dim", {64, 128})},
          {Mode::kCold},
          run};
}

}  // namespace kvcast::kernels
