// Copies between host and device memory: time by number and size of pieces, and by call.
#include <algorithm>

#include "cuda/all.hpp"
#include "cuda/case.hpp"
#include "device/copy_batch.hpp"
#include "device/streams.hpp"

namespace kvcast::kernels {

namespace {

struct CopyCase {
  std::string direction, memory, how, clock;
  std::size_t bytes, pieces;
};

// Pieces are separated by their own size on the host, and contiguous on the device, so that they cannot be merged.
class Copies {
 public:
  explicit Copies(const CopyCase& c)
      : c_(c),
        host_(2 * c.bytes * c.pieces, c.memory == "pinned"),
        device_(c.bytes * c.pieces),
        back_host_(c.direction == "both" ? host_.size() : 16, c.memory == "pinned"),
        back_device_(c.direction == "both" ? device_.size() : 16),
        streams_(c.direction == "both" ? 2 : 0) {
    KVCAST_CUDA(cudaMemset(back_device_.data(), 0x3A, back_device_.size()));
    KVCAST_CUDA(cudaDeviceSynchronize());  // the streams do not wait for the default one
    if (c.how != "batched") return;
    if (c.direction != "d2h") fill(batches_[0], false, device_.data(), host_.data());
    if (c.direction == "d2h") fill(batches_[1], true, device_.data(), host_.data());
    if (c.direction == "both") fill(batches_[1], true, back_device_.data(), back_host_.data());
  }

  void operator()(Queue queue) {
    if (streams_.size() == 0) return one_way(c_.direction == "d2h", queue, device_.data(), host_.data());
    streams_.fork(queue);
    one_way(false, streams_[0], device_.data(), host_.data());
    one_way(true, streams_[1], back_device_.data(), back_host_.data());
    streams_.join(queue);
  }

  bool holds() const {
    std::vector<unsigned char> got(device_.size());
    device_copy(got.data(), device_.data(), got.size());
    bool same = true;
    for (std::size_t i = 0; i < c_.pieces; ++i)
      same = same && std::memcmp(&got[i * c_.bytes], host_.data() + 2 * i * c_.bytes, c_.bytes) == 0;
    for (std::size_t i = 0; c_.direction == "both" && i < c_.pieces; ++i) {
      const unsigned char* p = back_host_.data() + 2 * i * c_.bytes;
      same = same && std::all_of(p, p + c_.bytes, [](unsigned char b) { return b == 0x3A; });
    }
    return same;
  }
  // Changes the data on the device, so that copies back can be compared with it.
  void invert_device() {
    std::vector<unsigned char> bytes(device_.size());
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(random_bits(92, i));
    device_copy(device_.data(), bytes.data(), bytes.size());
  }

 private:
  void piece(bool back, Queue q, unsigned char* device, unsigned char* host, std::size_t i) {
    unsigned char* d = device + i * c_.bytes;
    unsigned char* h = host + 2 * i * c_.bytes;
    KVCAST_CUDA(cudaMemcpyAsync(back ? h : d, back ? d : h, c_.bytes,
                                back ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, q));
  }
  void one_way(bool back, Queue q, unsigned char* device, unsigned char* host) {
    if (c_.how == "calls") {
      for (std::size_t i = 0; i < c_.pieces; ++i) piece(back, q, device, host, i);
    } else if (c_.how == "2d") {
      const std::size_t apart = 2 * c_.bytes;
      KVCAST_CUDA(cudaMemcpy2DAsync(back ? host : device, back ? apart : c_.bytes, back ? device : host,
                                    back ? c_.bytes : apart, c_.bytes, c_.pieces,
                                    back ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, q));
    } else {
      batches_[back ? 1 : 0].issue(q);
    }
  }

  void fill(CopyBatch& batch, bool back, unsigned char* device, unsigned char* host) const {
    for (std::size_t i = 0; i < c_.pieces; ++i) {
      unsigned char* const d = device + i * c_.bytes;
      unsigned char* const h = host + 2 * i * c_.bytes;
      batch.add(back ? h : d, back ? d : h, c_.bytes);
    }
  }

  CopyCase c_;
  HostBuffer host_;
  DeviceArray<unsigned char> device_;
  HostBuffer back_host_;
  DeviceArray<unsigned char> back_device_;
  SideStreams streams_;
  CopyBatch batches_[2];  // to the device, and back
};

// Returns whether a fit uses the case. For pageable memory: the host's time of large copies to the device, because such
// a copy occupies the host until it ends. For both directions at once: large copies, whose rate shows what the link can
// move. Otherwise: copies issued one by one and rows of a 2D copy, and the time to issue several pieces in any form.
bool feeds_a_fit(const CopyCase& c) {
  constexpr std::size_t kLarge = 1 << 20;
  const bool calls = c.how == "calls", both = c.direction == "both";
  if (c.memory == "pageable") return calls && c.direction == "h2d" && c.clock == "host" && c.bytes >= kLarge;
  if (c.clock == "host") return false;
  if (both) return calls && c.clock == "device" && c.bytes >= kLarge;
  return calls || c.how == "2d" || c.clock == "issue";
}

std::string reason_to_skip(const CopyCase& c) {
  if (c.bytes == 0 || c.pieces == 0) return "nothing to copy";
  if (c.memory == "pageable" && c.clock == "device")
    return "copies of pageable memory wait for the host, which a held stream would keep waiting";
  if (c.how == "batched" && !kHasCopyBatch) return "batched copies need CUDA 12.8";
  if (c.how != "calls" && c.pieces == 1) return "one piece is one call";
  if (c.how == "calls" && c.pieces > 512) return "more calls than the launch queue takes";
  if (2.0 * static_cast<double>(c.bytes) * static_cast<double>(c.pieces) > 6e8)
    return "more than 600 MB of host memory";
  return "";
}

void run(State& state) {
  const CopyCase c{state.word("direction"),
                   state.word("memory"),
                   state.word("how"),
                   state.word("clock"),
                   as_size(state.integer("bytes")),
                   as_size(state.integer("pieces"))};
  const auto one_of = [](const std::string& axis, const std::string& value, std::vector<std::string> known) {
    if (std::find(known.begin(), known.end(), value) == known.end())
      throw UsageError(axis + ": '" + value + "' is not known; --list names all");
  };
  one_of("direction", c.direction, {"h2d", "d2h", "both"});
  one_of("memory", c.memory, {"pinned", "pageable"});
  one_of("how", c.how, {"calls", "2d", "batched"});
  one_of("clock", c.clock, {"device", "host", "issue"});
  if (const std::string why = reason_to_skip(c); !why.empty()) return state.skip(why);
  if (!state.checking() && !feeds_a_fit(c)) return state.skip("no fit and no validation reads it");
  Copies copies(c);
  const auto call = [&](Queue queue) { copies(queue); };
  const double total = static_cast<double>(c.bytes * c.pieces) * (c.direction == "both" ? 2 : 1);
  state.moves(total, c.clock == "issue"      ? Resource::kNone
                     : c.direction == "both" ? Resource::kBoth
                     : c.direction == "h2d"  ? Resource::kH2d
                                             : Resource::kD2h);
  state.work("pieces", static_cast<double>(c.pieces) * (c.direction == "both" ? 2 : 1));
  if (c.how == "batched") {
    // Drivers older than the runtime do not support them, and they reject some memory: not a failure of the other
    // copies.
    try {
      run_and_wait(call);
    } catch (const std::runtime_error& error) {
      return state.skip(std::string("no batched copies of ") + c.memory + " memory here: " + error.what());
    }
  }
  if (state.checking()) {
    copies.invert_device();
    run_and_wait(call);
    return state.require(copies.holds(), "every piece arrived");
  }
  // A batch is one call, but its pieces are queued one by one: thousands would fill the queue of a held stream.
  const int calls = c.how == "2d" ? 1 : static_cast<int>(c.pieces) * (c.direction == "both" ? 2 : 1);
  measure_device(
      state, call,
      {.waits_for_host = c.clock == "host", .issue_only = c.clock == "issue", .flush = false, .launches = calls});
}

// The host's time of a call affects the predictions of offloading policies more than any other number.
bool urgent(const Case& c) {
  const auto is = [&](const char* axis, const char* value) {
    return std::find(c.begin(), c.end(), std::pair<std::string, std::string>(axis, value)) != c.end();
  };
  return is("clock", "issue") && is("direction", "h2d") && is("memory", "pinned") && is("pieces", "64");
}

}  // namespace

Bench host_copy(const Machine&) {
  return {"host_copy",
          "copies of pieces that lie apart on the host; clock: the device's, the host's with a wait, or until all is "
          "issued",
          {words("direction", {"h2d", "d2h", "both"}), words("memory", {"pinned", "pageable"}),
           words("how", {"calls", "2d", "batched"}), words("clock", {"device", "issue", "host"}),
           numbers("bytes", {256, 4096, 8192, 16384, 65536, 1 << 20, 1 << 26}), numbers("pieces", {1, 64, 512, 8192})},
          {numbers("bytes", {16, 4096}), numbers("pieces", {1, 33})},
          {Mode::kCold},
          run,
          4,
          urgent};
}

}  // namespace kvcast::kernels
