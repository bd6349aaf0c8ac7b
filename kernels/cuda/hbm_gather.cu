// Rows gathered from random positions of device memory into a dense buffer, as eviction compacts a cache and selection
// collects tokens. run: number of contiguous rows.
#include "cuda/all.hpp"
#include "cuda/gather.cuh"

namespace kvcast::kernels {

namespace {

void run(State& state) {
  const std::size_t row = as_size(state.integer("row_bytes")), rows = as_size(state.integer("rows"));
  const std::size_t length = as_size(state.integer("run")),
                    gathered = as_size(state.integer("gathered")) / std::max<std::size_t>(length, 1);
  if (row == 0 || row % 16 != 0) return state.skip("rows are whole 16-byte pieces");
  if (length == 0 || gathered == 0 || gathered * length > rows) return state.skip("more rows gathered than there are");
  const std::size_t total = gathered * length * row / 16;
  if (too_many_pieces(state, total)) return;
  if (too_large(state, static_cast<double>(row * (rows + gathered * length)))) return;
  const DeviceArray<Half> in = half_normals(72, rows * row / 2), out(gathered * length * row / 2);
  std::vector<std::uint32_t> starts(gathered);
  for (std::size_t i = 0; i < gathered; ++i) {
    starts[i] = permuted(8, static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(rows / length)) *
                static_cast<std::uint32_t>(length);
  }
  const DeviceArray<std::uint32_t> device_starts(starts);
  const auto call = [&](Queue queue) {
    launch({std::min(filling_blocks(state), blocks_for(total, 256))}, 256, 0, queue, gather_rows,
           reinterpret_cast<const Vec16*>(in.data()), device_starts.data(), reinterpret_cast<Vec16*>(out.data()),
           static_cast<std::uint32_t>(total), Divisor(static_cast<int>(length * row / 16)), static_cast<int>(row / 16));
  };
  const double bytes = 2.0 * static_cast<double>(gathered * length * row) + 4.0 * static_cast<double>(gathered);
  if (!state.checking() && bytes < 16e6) return state.skip("too few bytes to measure a bandwidth: no fit uses it");
  state.moves(bytes, Resource::kHbm);
  state.work("rows", static_cast<double>(gathered * length));
  state.work("runs", static_cast<double>(gathered));
  state.work("launches", 1);
  run_and_wait(call);
  if (!state.checking()) return measure_device(state, call, {.written = 0.5});
  const std::vector<Half> a = in.host(), b = out.host();
  bool same = true;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const std::size_t r = i / (row / 2), source = starts[r / length] + r % length;
    same = same && b[i].bits == a[source * (row / 2) + i % (row / 2)].bits;
  }
  state.require(same, "every row at its place");
}

}  // namespace

Bench hbm_gather(const Machine&) {
  return {
      "hbm_gather",
      "rows of device memory gathered at random in runs into a dense buffer; bytes read and written, and the list",
      {numbers("row_bytes", {32, 64, 128, 256, 1024, 2048}), numbers("rows", {1 << 20}),
       numbers("gathered", {32768, 262144}), numbers("run", {1, 4, 16, 32})},
      {numbers("row_bytes", {16, 256}), numbers("rows", {1000}), numbers("gathered", {1, 96}), numbers("run", {1, 8})},
      {Mode::kCold},
      run,
      2};
}

}  // namespace kvcast::kernels
