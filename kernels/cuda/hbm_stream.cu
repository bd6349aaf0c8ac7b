// Streams over device memory with 16-byte accesses, four independent ones of each thread in flight.
#include "cuda/all.hpp"
#include "cuda/stream.cuh"

namespace kvcast::kernels {

namespace {

constexpr int kInFlight = kStreamInFlight;

KVCAST_KERNEL KVCAST_BOUNDS_RESIDENT(256, kFillingBlocks) stream_write(Vec16* out, std::size_t n, std::uint32_t value) {
  const std::size_t step = std::size_t{grid_x()} * block_threads();
  const Vec16 v{{value, value, value, value}};
  for (std::size_t i = std::size_t{block_x()} * block_threads() + thread_x(); i < n; i += step) store16(out + i, v);
}

KVCAST_KERNEL KVCAST_BOUNDS_RESIDENT(256, kFillingBlocks) stream_copy(const Vec16* in, Vec16* out, std::size_t n) {
  const std::size_t step = std::size_t{grid_x()} * block_threads();
  for (std::size_t i = std::size_t{block_x()} * block_threads() + thread_x(); i < n; i += step * kInFlight) {
    Vec16 v[kInFlight];
    KVCAST_UNROLL
    for (int j = 0; j < kInFlight; ++j) {
      const std::size_t at = i + static_cast<std::size_t>(j) * step;
      if (at < n) v[j] = load16(in + at);
    }
    KVCAST_UNROLL
    for (int j = 0; j < kInFlight; ++j) {
      const std::size_t at = i + static_cast<std::size_t>(j) * step;
      if (at < n) store16(out + at, v[j]);
    }
  }
}

void check(State& state, const std::string& op, const DeviceArray<Half>& in, const DeviceArray<Half>& out,
           const DeviceArray<std::uint32_t>& sums) {
  const std::vector<Half> a = in.host(), b = out.host();
  bool same = true;
  for (std::size_t i = 0; i < a.size(); ++i) same = same && b[i].bits == (op == "copy" ? a[i].bits : 0x3C00);
  if (op != "read") return state.require(same, "every element written");
  std::uint32_t got = 0, expected = 0;
  for (const std::uint32_t s : sums.host()) got += s;
  for (std::size_t i = 0; i < a.size(); ++i) expected += std::uint32_t{a[i].bits} << (16 * (i % 2));
  state.require(got == expected, "the sum of all words read");
}

void run(State& state) {
  const std::string& op = state.word("op");
  if (op != "read" && op != "write" && op != "copy") throw UsageError("op: '" + op + "' is not read, write or copy");
  const std::size_t n = as_size(state.integer("bytes")) / 16;
  if (n == 0) return state.skip("less than 16 bytes");
  if (too_large(state, 32.0 * static_cast<double>(n))) return;
  const DeviceArray<Half> in = half_normals(71, n * 8), out(n * 8);
  const Vec16* from = reinterpret_cast<const Vec16*>(in.data());
  Vec16* to = reinterpret_cast<Vec16*>(out.data());
  const Grid grid{std::min(filling_blocks(state), blocks_for(n, 256))};
  const DeviceArray<std::uint32_t> sums(as_size(grid.x) * 8);
  const auto call = [&](Queue queue) {
    if (op == "read") launch(grid, 256, 0, queue, stream_read, from, n, sums.data());
    if (op == "write") launch(grid, 256, 0, queue, stream_write, to, n, 0x3C003C00u);
    if (op == "copy") launch(grid, 256, 0, queue, stream_copy, from, to, n);
  };
  state.moves(16.0 * static_cast<double>(n) * (op == "copy" ? 2 : 1), Resource::kHbm);
  state.work("launches", 1);
  if (!state.checking())
    return measure_device(state, call, {.written = op == "read" ? 0.0 : op == "write" ? 1.0 : 0.5});
  run_and_wait(call);
  check(state, op, in, out, sums);
}

}  // namespace

Bench hbm_stream(const Machine&) {
  return {
      "hbm_stream",
      "streaming read, write or copy of device memory; bytes read plus bytes written",
      {words("op", {"read", "write", "copy"}), numbers("bytes", {1 << 12, 1 << 16, 1 << 20, 1 << 22, 1 << 24, 1 << 26,
                                                                 1 << 28, 1 << 30, std::int64_t{1} << 32})},
      {numbers("bytes", {16, 4096, 16 * 2100})},
      {Mode::kCold},
      run};
}

}  // namespace kvcast::kernels
