// Copies over the link while kernels stream through device memory, which both use: how much does each slow the other
// down? Copy and kernels start together on streams of their own; the time is that until both have ended.
#include "cuda/all.hpp"
#include "cuda/stream.cuh"
#include "device/streams.hpp"

namespace kvcast::kernels {

namespace {

void run(State& state) {
  const std::string& direction = state.word("direction");
  if (direction != "h2d" && direction != "d2h") throw UsageError("direction: '" + direction + "' is not h2d or d2h");
  const std::size_t copied = as_size(state.integer("copied")), each = as_size(state.integer("bytes"));
  const int kernels = as_int(state, "kernels");
  if (copied < 16 || each < 16 || kernels < 1) return state.skip("a copy and a kernel of 16 bytes or more");
  if (too_large(state, static_cast<double>(copied + each))) return;
  HostBuffer host(copied, true);
  const DeviceArray<unsigned char> device(copied);
  if (direction == "d2h") device_copy(device.data(), host.data(), copied);
  const DeviceArray<Half> streamed = half_normals(71, each / 2);
  const std::size_t pieces = each / 16;
  const Grid grid{std::min(filling_blocks(state), blocks_for(pieces, 256))};
  const DeviceArray<std::uint32_t> sums(as_size(grid.x) * 8);
  SideStreams side(1);
  const auto call = [&](Queue queue) {
    side.fork(queue);
    KVCAST_CUDA(cudaMemcpyAsync(direction == "h2d" ? static_cast<void*>(device.data()) : host.data(),
                                direction == "h2d" ? static_cast<const void*>(host.data()) : device.data(), copied,
                                cudaMemcpyDefault, side[0]));
    for (int i = 0; i < kernels; ++i) {
      launch(grid, 256, 0, queue, stream_read, reinterpret_cast<const Vec16*>(streamed.data()), pieces, sums.data());
    }
    side.join(queue);
  };
  state.moves(static_cast<double>(copied), direction == "h2d" ? Resource::kH2d : Resource::kD2h);
  state.work("launches", kernels);
  run_and_wait(call);
  const std::vector<unsigned char> got = device.host();
  state.require(std::equal(got.begin(), got.end(), host.data()), "the copy arrived");
  if (!state.checking()) return measure_device(state, call, {.flush = false, .launches = kernels + 1});
  std::uint32_t sum = 0, expected = 0;
  for (const std::uint32_t s : sums.host()) sum += s;
  const std::vector<Half> values = streamed.host();
  for (std::size_t i = 0; i < values.size(); ++i) expected += std::uint32_t{values[i].bits} << (16 * (i % 2));
  state.require(sum == expected, "the sum of all words read");
}

}  // namespace

// At 55 GB/s and 4 TB/s the copies take 1.2 and 4.9 ms and the kernels 1 and 4: either may be the longer one.
Bench copy_beside_stream(const Machine&) {
  return {"copy_beside_stream",
          "a copy over the link and kernels that read device memory, together from their start to the later end; bytes "
          "of the copy",
          {words("direction", {"h2d", "d2h"}), numbers("copied", {1 << 26, 1 << 28}), numbers("bytes", {1 << 30}),
           numbers("kernels", {4, 16})},
          {numbers("copied", {4096}), numbers("bytes", {16 * 2100}), numbers("kernels", {1, 3})},
          {Mode::kCold},
          run};
}

}  // namespace kvcast::kernels
