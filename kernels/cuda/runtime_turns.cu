// Copies to the device in groups that alternate between streams, as a recall with two staging buffers issues them. With
// the same groups on one stream it shows whether the copy engine loses time at each copy, at each change of the stream,
// or only when a kernel has to consume a group before the next one on its stream; and then, by what the kernel reads,
// whether it is the order of copies and kernels that costs, a kernel's reads from memory, or reads of what just
// arrived.
#include "cuda/all.hpp"
#include "cuda/stream.cuh"
#include "device/streams.hpp"

namespace kvcast::kernels {

namespace {

struct TurnsCase {
  std::size_t bytes, pieces, groups, streams;
  bool kernel;  // follows each group, on its stream
  // group: the kernel reads the group; other: as much other memory; nothing: nothing; apart: other memory, on a stream
  // of its own, in no order with the copies.
  std::string reads;
  bool apart() const { return kernel && reads == "apart"; }
};

class Turns {
 public:
  explicit Turns(const TurnsCase& c)
      : c_(c),
        host_(2 * c.bytes * c.pieces * c.groups, true),
        device_(c.bytes * c.pieces * c.groups),
        grid_{std::min(16u, blocks_for(group() / 16, 256))},
        other_(c.reads == "other" || c.reads == "apart" ? device_.size() : 0),
        sums_(as_size(grid_.x) * 8 * (c.streams + 1)),
        side_(static_cast<int>(c.streams) + (c.apart() ? 1 : 0)) {
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
      const std::size_t on = c_.apart() ? c_.streams : g % c_.streams;
      const DeviceArray<unsigned char>& in = other_.size() > 0 ? other_ : device_;
      launch(grid_, 256, 0, side_[on], stream_read, reinterpret_cast<const Vec16*>(in.data() + g * group()),
             c_.reads == "nothing" ? 0 : group() / 16, sums_.data() + on * as_size(grid_.x) * 8);
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
  DeviceArray<unsigned char> other_;
  DeviceArray<std::uint32_t> sums_;
  SideStreams side_;
};

void run(State& state) {
  const TurnsCase c{as_size(state.integer("bytes")),  as_size(state.integer("pieces")),
                    as_size(state.integer("groups")), as_size(state.integer("streams")),
                    state.integer("kernel") != 0,     state.word("reads")};
  if (c.reads != "group" && c.reads != "other" && c.reads != "nothing" && c.reads != "apart")
    throw UsageError("reads: '" + c.reads + "' is not group, other, nothing or apart");
  if (!c.kernel && c.reads != "group") return state.skip("there is no kernel to read anything else");
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
      "copies to the device, in groups that alternate between streams; kernel: each group is followed by a kernel on "
      "its stream; reads: what the kernel reads (group, other, nothing), or other memory on a stream apart",
      {numbers("streams", {1, 2}), numbers("kernel", {0, 1}), numbers("pieces", {1, 4, 16}),
       numbers("bytes", {256, 16384, 65536}), numbers("groups", {8, 24}), words("reads", {"group"})},
      {numbers("bytes", {16, 4096}), numbers("pieces", {1, 3}), numbers("groups", {3}), numbers("streams", {2}),
       numbers("kernel", {1}), words("reads", {"group", "other", "nothing", "apart"})},
      {Mode::kCold},
      run};
}

}  // namespace kvcast::kernels
