// A kernel that gathers pieces from page-locked host memory by plain loads, as recall without copy engines does.
#include "cuda/all.hpp"
#include "cuda/gather.cuh"
#include "device/streams.hpp"

namespace kvcast::kernels {

namespace {

void run(State& state) {
  const std::size_t piece = as_size(state.integer("piece")), total = as_size(state.integer("bytes")),
                    blocks = as_size(state.integer("blocks"));
  if (piece == 0 || piece % 16 != 0 || total < piece || blocks == 0 || blocks > 1 << 20)
    return state.skip("pieces are multiples of 16 bytes, at least one, and blocks at most 2^20");
  const std::size_t pieces = total / piece, places = 2 * pieces;
  if (too_many_pieces(state, places * piece / 16)) return;
  HostBuffer host(places * piece, true);
  const DeviceArray<Half> out(pieces * piece / 2);
  std::vector<std::uint32_t> starts(pieces);
  for (std::size_t i = 0; i < pieces; ++i)
    starts[i] = permuted(9, static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(places));
  const DeviceArray<std::uint32_t> device_starts(starts);
  const Vec16* in = static_cast<const Vec16*>(host.device());
  const auto call = [&](Queue queue) {
    launch({as_unsigned(static_cast<std::int64_t>(blocks))}, 256, 0, queue, gather_rows, in, device_starts.data(),
           reinterpret_cast<Vec16*>(out.data()), static_cast<std::uint32_t>(pieces * piece / 16),
           Divisor(static_cast<int>(piece / 16)), static_cast<int>(piece / 16));
  };
  state.moves(static_cast<double>(pieces * piece), Resource::kH2d);
  state.work("pieces", static_cast<double>(pieces));
  state.work("launches", 1);
  run_and_wait(call);
  const std::vector<Half> got = out.host();
  bool same = true;
  for (std::size_t i = 0; i < pieces; ++i)
    same = same && std::memcmp(&got[i * piece / 2], host.data() + starts[i] * piece, piece) == 0;
  state.require(same, "every piece at its place");
  if (!state.checking()) measure_device(state, call);
}

}  // namespace

Bench zero_copy_gather(const Machine&) {
  return {"zero_copy_gather",
          "pieces of page-locked host memory gathered by a kernel; bytes over the link",
          {numbers("piece", {64, 256, 1024, 4096, 8192, 16384, 65536}),
           numbers("bytes", {1 << 20, 1 << 24, 1 << 27, 1 << 30}), numbers("blocks", {128})},
          {numbers("piece", {16, 256}), numbers("bytes", {4096}), numbers("blocks", {1, 5})},
          {Mode::kCold},
          run};
}

}  // namespace kvcast::kernels
