// Copies to the device in groups that alternate between streams, as a recall with two staging buffers issues them. With
// the same groups on one stream it shows whether the copy engine loses time at each copy, at each change of the stream,
// or only when a kernel has to consume a group before the next one on its stream.
#include "cuda/all.hpp"
#include "cuda/stream.cuh"
#include "device/streams.hpp"

namespace kvcast::kernels {

namespace {

struct TurnsCase {
  std::size_t bytes, pieces, groups, streams;
  bool kernel;  // reads each group, on its stream
};

class Turns {
 public:
  explicit Turns(const TurnsCase& c)
      : c_(c),
        host_(2 * c.bytes * c.pieces * c.groups, true),
        device_(c.bytes * c.pieces * c.groups),
        grid_{std::min(16u, blocks_for(group() / 16, 256))},
        sums_(as_size(grid_.x) * 8 * c.streams),
        side_(static_cast<int>(c.streams)) {
    KVCAST_CUDA(cudaDeviceSynchronize());  // the streams do not wait for the default one
  }

  void operator()(Queue queue) {
    side_.fork(queue);
    for (std::size_t g = 0; g < c_.groups; ++g) {
      const Queue to = side_[g % c_.streams];
      for (std::size_t i = g * c_.pieces; i < (g + 1) * c_.pieces; ++i) {
        KVCAST_CUDA(cudaMemcpyAsync(device_.data() + i * c_.bytes, host_.data() + 2 * i * c_.bytes, c_.bytes,
                                    cudaMemcpyHostToDevice, to));
      }
      if (!c_.kernel) continue;
      launch(grid_, 256, 0, to, stream_read, reinterpret_cast<const Vec16*>(device_.data() + g * group()), group() / 16,
             sums_.data() + g % c_.streams * as_size(grid_.x) * 8);
    }
    side_.join(queue);
  }

  bool holds() const {
    const std::vector<unsigned char> got = device_.host();
    bool same = true;
    for (std::size_t i = 0; i < c_.pieces * c_.groups; ++i)
      same = same && std::memcmp(&got[i * c_.bytes], host_.data() + 2 * i * c_.bytes, c_.bytes) == 0;
    return same;
  }

 private:
  std::size_t group() const { return c_.bytes * c_.pieces; }

  TurnsCase c_;
  HostBuffer host_;
  DeviceArray<unsigned char> device_;
  Grid grid_;
  DeviceArray<std::uint32_t> sums_;
  SideStreams side_;
};

void run(State& state) {
  const TurnsCase c{as_size(state.integer("bytes")), as_size(state.integer("pieces")), as_size(state.integer("groups")),
                    as_size(state.integer("streams")), state.integer("kernel") != 0};
  if (c.bytes < 16 || c.bytes % 16 != 0 || c.pieces < 1 || c.groups < 1 || c.streams < 1)
    return state.skip("pieces of whole 16 bytes, and one or more of everything");
  const std::size_t launches = c.groups * (c.pieces + (c.kernel ? 1 : 0));
  if (launches > 512) return state.skip("more calls than the launch queue takes");
  Turns turns(c);
  const auto call = [&](Queue queue) { turns(queue); };
  state.moves(static_cast<double>(c.bytes * c.pieces * c.groups), Resource::kH2d);
  state.work("pieces", static_cast<double>(c.pieces * c.groups));
  run_and_wait(call);
  state.require(turns.holds(), "every piece arrived");
  if (!state.checking()) measure_device(state, call, {.flush = false, .launches = static_cast<int>(launches)});
}

}  // namespace

Bench copy_turns(const Machine&) {
  return {
      "copy_turns",
      "copies to the device, in groups that alternate between streams; kernel: each group is read by a kernel on its "
      "stream",
      {numbers("streams", {1, 2}), numbers("kernel", {0, 1}), numbers("pieces", {1, 4, 16}),
       numbers("bytes", {256, 16384, 65536}), numbers("groups", {8, 24})},
      {numbers("bytes", {16, 4096}), numbers("pieces", {1, 3}), numbers("groups", {3}), numbers("streams", {2}),
       numbers("kernel", {1})},
      {Mode::kCold},
      run};
}

}  // namespace kvcast::kernels
