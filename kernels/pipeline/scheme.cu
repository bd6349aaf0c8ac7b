#include "pipeline/scheme.hpp"

#include "reference/attention.hpp"

namespace kvcast::kernels {

namespace {

std::vector<float> floats_at(const Half* data, std::size_t n) {
  std::vector<Half> halves(n);
  device_copy(halves.data(), data, n * 2);
  std::vector<float> out;
  for (const Half h : halves) out.push_back(value_of(h));
  return out;
}

class Pipeline {
 public:
  Pipeline(const PipelineShape& shape, std::unique_ptr<Scheme> scheme, Launches launches)
      : s_(shape), launches_(launches), dense_(shape), scheme_(std::move(scheme)) {}

  void call() {
    for (int i = 0; i < s_.steps; ++i, ++step_) {
      if (launches_ == Launches::kSingle || !step_graph_.recorded()) {
        queue_step();
      } else {
        step_graph_.launch(main_.queue());
      }
      main_.synchronize();
      if (launches_ == Launches::kGraph && !step_graph_.recorded()) step_graph_.record(main_, [this] { queue_step(); });
    }
  }
  Scheme& scheme() { return *scheme_; }

 private:
  void queue_step() {
    dense_.begin_step(step_);
    for (int layer = 0; layer < s_.layers; ++layer) {
      dense_.before(main_.queue(), layer, scheme_->query(step_, layer), scheme_->append_to(step_, layer));
      dense_.after(main_.queue(), layer, scheme_->attend(main_, step_, layer));
    }
    dense_.head(main_);
  }

  PipelineShape s_;
  Launches launches_;
  Dense dense_;
  std::unique_ptr<Scheme> scheme_;
  Graph step_graph_;
  Stream main_;  // destroyed first: nothing is queued when memory is freed
  int step_ = 0;
};

void check_once(State& state, const PipelineShape& shape, const std::function<std::unique_ptr<Scheme>()>& make,
                Launches launches) {
  Pipeline pipeline(shape, make(), launches);
  pipeline.call();
  pipeline.call();
  pipeline.scheme().finish();
  pipeline.scheme().check(state);
}

}  // namespace

void run_scheme(State& state, const PipelineShape& shape, const std::function<std::unique_ptr<Scheme>()>& make,
                Launches launches) {
  if (state.checking()) {
#ifndef __CUDACC__
    emulator::set_order(emulator::Order::kSoon);
    check_once(state, shape, make, launches);
    emulator::set_order(emulator::Order::kLate);
#endif
    return check_once(state, shape, make, launches);
  }
#ifndef __CUDACC__
  // Before anything is built: the rows of measured shapes then list cases and counts in no time.
  return measure_device(state, {});
#endif
  Pipeline pipeline(shape, make(), launches);
  measure_device(state, [&](Queue) { pipeline.call(); }, {.waits_for_host = true, .flush = false});
  pipeline.scheme().finish();
}

void state_counts(State& state, const PipelineCounts& c) {
  state.work("attended", c.attended);
  state.work("scored", c.scored);
  state.work("candidates", c.candidates);
  state.work("fetched", c.fetched);
  state.work("fetched_runs", c.fetched_runs);
  state.work("cpu_attended", c.cpu_attended);
  state.work("corrected_heads", c.corrected_heads);
}

bool too_large_pipeline(State& state, const PipelineShape& shape, double device_bytes, double host_bytes) {
  if (too_large(state, shape.weight_bytes() + device_bytes)) return true;
  if (state.checking() || state.machine().dram_bytes <= 0 || host_bytes < 0.5 * state.machine().dram_bytes)
    return false;
  state.skip("the data does not fit in host memory");
  return true;
}

Bench pipeline_bench(std::string name, std::string about, std::vector<Axis> own, std::vector<Axis> own_check,
                     void (*run)(State&)) {
  // Llama-3.1-8B's layers; the head is small, so that the layers dominate the time.
  std::vector<Axis> axes = {numbers("context", {8192, 32768, 131072}),
                            numbers("batch", {1, 4, 8}),
                            numbers("layers", {4}),
                            numbers("steps", {8}),
                            numbers("hidden", {4096}),
                            numbers("q_heads", {32}),
                            numbers("kv_heads", {8}),
                            numbers("dim", {128}),
                            numbers("ffn", {14336}),
                            numbers("vocab", {4096})};
  std::vector<Axis> check = {numbers("context", {256}), numbers("batch", {1, 2}), numbers("layers", {2}),
                             numbers("steps", {3}),     numbers("hidden", {64}),  numbers("q_heads", {4}),
                             numbers("kv_heads", {2}),  numbers("dim", {64}),     numbers("ffn", {96}),
                             numbers("vocab", {40})};
  for (Axis& axis : own) axes.push_back(std::move(axis));
  for (Axis& axis : own_check) {
    if (replace_axes(check, {axis}) == 0) check.push_back(std::move(axis));
  }
  return {std::move(name), std::move(about), std::move(axes), std::move(check), {Mode::kBatch}, run};
}

void compare_output(State& state, const PipelineShape& s, const Half* query, const Half* out,
                    const AttendedRows& rows) {
  const std::size_t dim = as_size(s.dim), n = as_size(s.batch * s.q_heads);
  const std::vector<float> q = floats_at(query, n * dim), got = floats_at(out, n * dim);
  std::vector<float> expected;
  for (int b = 0; b < s.batch; ++b) {
    for (int h = 0; h < s.q_heads; ++h) {
      std::vector<float> keys, values;
      rows(b, h / s.group(), keys, values);
      const auto one = reference::attend(&q[as_size(b * s.q_heads + h) * dim], keys.data(), values.data(),
                                         keys.size() / dim, dim, 1 / std::sqrt(static_cast<double>(s.dim)));
      expected.insert(expected.end(), one.out.begin(), one.out.end());
    }
  }
  state.compare("the last layer's attention", got, expected, 3e-3);
}

}  // namespace kvcast::kernels
