// Recall of missing pages as FreeKV does it (arXiv 2505.13109, §4): pages of one KV head lie in host memory as one
// piece each; copies fill a staging buffer, a kernel scatters it into the device's layout, and with two buffers the
// copies of one head run beside the conversion of the one before.
#include "cuda/all.hpp"
#include "cuda/convert.cuh"
#include "device/streams.hpp"

namespace kvcast::kernels {

namespace {

class Recall {
 public:
  // shape.kv_heads heads, each missing shape.pages pages.
  Recall(const PageShape& shape, bool double_buffer)
      : head_{shape.pages, shape.page, 1, shape.dim},
        heads_(static_cast<std::size_t>(shape.kv_heads)),
        piece_(as_size(shape.page) * as_size(shape.dim) * 4),
        host_(2 * piece_ * as_size(shape.pages) * heads_, true),
        streams_(2),
        buffers_(double_buffer ? 2 : 1) {
    const std::size_t each = as_size(shape.pages) * piece_ / 2;
    for (std::size_t b = 0; b < buffers_; ++b) staging_.emplace_back(each);
    for (std::size_t h = 0; h < heads_; ++h) {
      keys_.emplace_back(each / 2);
      values_.emplace_back(each / 2);
    }
    copied_.resize(buffers_);
    converted_.resize(buffers_);
    for (auto* events : {&copied_, &converted_}) {
      for (cudaEvent_t& e : *events) KVCAST_CUDA(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    }
  }
  ~Recall() {
    for (auto* events : {&copied_, &converted_}) {
      for (cudaEvent_t e : *events) cudaEventDestroy(e);
    }
  }
  Recall(const Recall&) = delete;
  Recall& operator=(const Recall&) = delete;

  void operator()(Queue queue) {
    streams_.fork(queue);
    for (std::size_t h = 0; h < heads_; ++h) {
      const std::size_t b = h % buffers_;
      if (h >= buffers_) KVCAST_CUDA(cudaStreamWaitEvent(streams_[0], converted_[b], 0));
      for (std::size_t p = 0; p < as_size(head_.pages); ++p) {
        unsigned char* to = reinterpret_cast<unsigned char*>(staging_[b].data()) + p * piece_;
        KVCAST_CUDA(cudaMemcpyAsync(to, source(h, p), piece_, cudaMemcpyHostToDevice, streams_[0]));
      }
      KVCAST_CUDA(cudaEventRecord(copied_[b], streams_[0]));
      KVCAST_CUDA(cudaStreamWaitEvent(streams_[1], copied_[b], 0));
      launch({blocks_for(staging_[b].size() / 8, 256)}, 256, 0, streams_[1], hnd_to_nhd, head_, staging_[b].data(),
             keys_[h].data(), values_[h].data());
      KVCAST_CUDA(cudaEventRecord(converted_[b], streams_[1]));
    }
    streams_.join(queue);
  }

  void check(State& state) const {
    for (std::size_t h = 0; h < heads_; ++h) {
      std::vector<Half> pages(staging_[0].size());
      for (std::size_t p = 0; p < as_size(head_.pages); ++p) std::memcpy(&pages[p * piece_ / 2], source(h, p), piece_);
      check_conversion(state, head_, keys_[h], values_[h], DeviceArray<Half>(pages));
    }
  }
  std::size_t bytes() const { return heads_ * as_size(head_.pages) * piece_; }

 private:
  // Missing pages lie apart.
  unsigned char* source(std::size_t head, std::size_t page) const {
    return host_.data() + 2 * (head * as_size(head_.pages) + page) * piece_;
  }

  PageShape head_;
  std::size_t heads_, piece_;
  HostBuffer host_;
  SideStreams streams_;
  std::size_t buffers_;
  std::vector<DeviceArray<Half>> staging_, keys_, values_;
  std::vector<cudaEvent_t> copied_, converted_;
};

void run(State& state) {
  const PageShape s{as_int(state, "missing"), as_int(state, "page"), as_int(state, "heads"), as_int(state, "dim")};
  if (s.dim % 8 != 0 || s.pages < 1)
    return state.skip("rows are whole 16-byte pieces, and at least one page is missing");
  Recall recall(s, state.integer("buffers") == 2);
  const auto call = [&](Queue queue) { recall(queue); };
  const int launches = s.kv_heads * (s.pages + 5);
  state.moves(static_cast<double>(recall.bytes()), Resource::kH2d);
  state.work("pieces", static_cast<double>(s.kv_heads) * s.pages);
  state.work("launches", s.kv_heads);
  if (!state.checking())
    return measure_device(state, call, {.waits_for_host = launches > 500, .flush = false, .launches = launches});
  run_and_wait(call);
  recall.check(state);
}

}  // namespace

Bench recall(const Machine&) {
  return {"recall",
          "missing pages of each KV head copied piece by piece and converted, through one or two staging buffers; "
          "bytes over the link",
          {numbers("missing", {1, 4, 16, 48}), numbers("heads", {1, 8, 32}), numbers("page", {32}),
           numbers("dim", {128}), numbers("buffers", {1, 2})},
          {numbers("missing", {1, 3}), numbers("heads", {1, 5}), numbers("page", {8}), numbers("dim", {64})},
          {Mode::kCold},
          run};
}

}  // namespace kvcast::kernels
