// Cost of a kernel that does nothing: chains of launches on a stream and in a graph, and the host's cost of waiting.
#include <cstring>
#include <functional>

#include "cuda/all.hpp"
#include "cuda/case.hpp"
#include "device/async.hpp"
#include "device/streams.hpp"

namespace kvcast::kernels {

namespace {

__global__ void count_up(std::uint32_t* counter) {
  if (threadIdx.x == 0) *counter += 1;
}

// Kernels of one stream run one after another, so that the counter needs no atomics.
class Chain {
 public:
  Chain(int kernels, bool graph) : kernels_(kernels), counter_(std::vector<std::uint32_t>(1, 0u)) {
    if (!graph) return;
    // load now: modules load lazily, and not every driver allows that while a stream is captured
    cudaFuncAttributes loaded;
    KVCAST_CUDA(cudaFuncGetAttributes(&loaded, count_up));
    Stream stream;
    graph_.record(stream, [&] { enqueue(stream.queue()); });
  }

  void operator()(Queue queue) const {
    if (graph_.recorded()) {
      graph_.launch(queue);
    } else {
      enqueue(queue);
    }
  }
  std::uint32_t count() const { return counter_.host()[0]; }

 private:
  void enqueue(Queue queue) const {
    for (int i = 0; i < kernels_; ++i) launch({1}, 32, 0, queue, count_up, counter_.data());
  }
  int kernels_;
  DeviceArray<std::uint32_t> counter_;
  Graph graph_;
};

void run_chain(State& state) {
  const int kernels = as_int(state, "kernels");
  const std::string& how = state.word("how");
  const std::string& clock = state.word("clock");
  if (how != "stream" && how != "graph") throw UsageError("how: '" + how + "' is neither stream nor graph");
  if (clock != "device" && clock != "issue") throw UsageError("clock: '" + clock + "' is neither device nor issue");
  const Chain chain(kernels, how == "graph");
  const auto call = [&](Queue queue) { chain(queue); };
  state.work("launches", kernels);
  if (!state.checking()) {
    return measure_device(state, call,
                          {.issue_only = clock == "issue", .flush = false, .launches = how == "graph" ? 1 : kernels});
  }
  for (int i = 0; i < 3; ++i) run_and_wait(call);
  state.require(chain.count() == 3u * static_cast<unsigned>(kernels), "every kernel of the chain ran");
}

// One way in which a host waits for the device; each stores the number of waits.
void run_sync(State& state) {
  const std::string& what = state.word("what");
  const Chain one(1, false);
  HostBuffer answer(64, true);
  DeviceArray<std::uint32_t> device(std::vector<std::uint32_t>(1, 77u));
  std::function<void(Queue)> call;
  if (what == "stream_sync_idle") call = [&](Queue q) { KVCAST_CUDA(cudaStreamSynchronize(q)); };
  // A value is read back, as for a decision on the host: kernel, copy of 4 bytes, wait.
  if (what == "value_round_trip") {
    call = [&](Queue q) {
      one(q);
      KVCAST_CUDA(cudaMemcpyAsync(answer.data(), device.data(), 4, cudaMemcpyDeviceToHost, q));
      KVCAST_CUDA(cudaStreamSynchronize(q));
    };
  }
  if (!call) throw UsageError("what: '" + what + "' is not known; --list names all");
  if (state.checking()) {
    run_and_wait(call);
    std::uint32_t value = 0;
    std::memcpy(&value, answer.data(), 4);
    const bool launched = what == "value_round_trip";
    state.require(one.count() == (launched ? 1u : 0u), "kernels ran as often as launched");
    state.require(!launched || value == 77u, "the value came back");
  } else {
    measure_device(state, call, {.waits_for_host = true, .flush = false});
  }
}

}  // namespace

Bench launch_chain(const Machine&) {
  return {
      "launch_chain",
      "kernels that do nothing, one after another; clock: on the device with all queued before, or until "
      "queued",
      {words("how", {"stream", "graph"}), numbers("kernels", {1, 4, 16, 64, 256}), words("clock", {"device", "issue"})},
      {numbers("kernels", {1, 40})},
      {Mode::kCold},
      run_chain,
      2};
}

Bench host_sync(const Machine&) {
  return {"host_sync",
          "time of a host thread to wait for an idle stream, and for a kernel and a value",
          {words("what", {"stream_sync_idle", "value_round_trip"})},
          {},
          {Mode::kBatch},
          run_sync};
}

}  // namespace kvcast::kernels
