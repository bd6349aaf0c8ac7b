// FreeKV (arXiv 2505.13109). speculation: a layer attends to the pages recalled since its last step, and the recall for
// the next one runs on separate streams and a separate thread, concurrently with later work; without it every recall
// precedes attention. correction: heads whose query turned are recalled again before attention, in the first step of
// each call. layout: host pages head by head, converted on arrival (hybrid), or token by token (nhd), one row of a head
// per copy. buffers: staging buffers of the hybrid layout, each with a stream of its own. recall: zero_copy needs no
// buffers, no thread and no numbers on the host: a kernel behind the top-k reads the pages of all heads.
#include "cuda/query_similarity.cuh"
#include "cuda/topk.cuh"
#include "pipeline/all.hpp"
#include "pipeline/backup.hpp"
#include "pipeline/move.cuh"
#include "pipeline/select.cuh"

namespace kvcast::kernels {

namespace {

struct FreeKvSetting {
  bool speculation, correction, hybrid;
  int buffers;
  int corrected;  // heads per sequence
};

// Scores, choice and the chosen pages on the host: one for each stream that selects.
struct Selection {
  DeviceArray<float> raw, reduced;
  DeviceArray<std::uint32_t> ids;
  PinnedMemory ids_host;
  TopkRun topk;
  Selection(const PipelineShape& s, int units, int chosen)
      : raw(as_size(s.batch * s.q_heads) * as_size(units)),
        reduced(as_size(s.heads()) * as_size(units)),
        ids(as_size(s.heads() * chosen)),
        ids_host(ids.size() * 4),
        topk(s.heads(), units, chosen) {}
};

class FreeKv final : public Scheme {
 public:
  FreeKv(const PipelineShape& s, const PageSetting& p, const FreeKvSetting& f, const State& state)
      : s_(s),
        f_(f),
        checking_(state.checking()),
        pages_(s, p),
        units_(p.pages - p.recent),
        queries_(2 * as_size(s.layers) * as_size(s.batch * s.q_heads * s.dim)),
        bounds_(half_normals(231, as_size(s.layers) * as_size(p.pages) * as_size(s.heads()) * 2 * as_size(s.dim))),
        cosines_(as_size(s.heads())),
        flags_(as_size(s.heads())),
        flags_host_(flags_.size() * 4),
        ahead_(s, units_, p.chosen),
        attention_(pages_.attention(state.machine().sm_count), s.dim),
        tickets_(as_size(s.layers), 0),
        arrived_(2 * as_size(s.layers)),
        attended_(as_size(s.layers)),
        backup_(s, pages_) {
    for (int i = 0; i < s.layers; ++i) now_.emplace_back(s, units_, p.chosen);
    for (int b = 0; b < f.buffers && !zero_copy(); ++b)
      staging_.emplace_back(as_size(s.batch * p.missing) * pages_.head_bytes() / 2);
  }
  ~FreeKv() override { worker_.settle(); }

  AppendTo append_to(int, int layer) override { return pages_.last_row(layer); }
  // Two for each layer, in turns: the check needs the last one, and the recall's thread reads this one while others
  // continue.
  Half* query(int step, int layer) override {
    return queries_.data() +
           (as_size(step % 2) * as_size(s_.layers) + as_size(layer)) * as_size(s_.batch * s_.q_heads * s_.dim);
  }

  const Half* attend(Stream& main, int step, int layer) override {
    last_step_ = step;
    backup_.next(main, layer);
    widen(main, layer);
    bool chosen = false;
    if (f_.speculation) {
      worker_.wait(tickets_[as_size(layer)]);
      for (int lane = 0; lane < 2; ++lane) main.wait(arrived_[as_size(2 * layer + lane)]);
      if (f_.correction) compare(main, step, layer);
      chosen = f_.correction && f_.corrected > 0 && step % s_.steps == 0;
      if (chosen) recall_now(main, step, layer, 0, f_.corrected);
    } else {
      recall_now(main, step, layer, 0, s_.kv_heads);
      pages_.end_step(layer);
    }
    attention_(main.queue(), query(step, layer), pages_.keys(layer), pages_.values(layer), pages_.lists());
    if (checking_) pages_.remember(layer);
    if (f_.speculation) recall_ahead(main, step, layer, chosen);
    return attention_.out().data();
  }
  void finish() override {
    worker_.wait_all();
    for (Stream& stream : copies_) stream.synchronize();
    select_.synchronize();
    backup_.finish();
  }
  void check(State& state) override {
    compare_output(
        state, s_, query(last_step_, s_.layers - 1), attention_.out().data(),
        [&](int b, int h, std::vector<float>& k, std::vector<float>& v) { pages_.rows(s_.layers - 1, b, h, k, v); });
  }

 private:
  bool zero_copy() const { return pages_.setting().recall == Recall::kZeroCopy; }
  Half* bounds(int layer) const { return bounds_.data() + bounds_.size() / as_size(s_.layers) * as_size(layer); }

  void widen(Stream& main, int layer) {
    const AppendTo row = pages_.last_row(layer);
    launch({blocks_for(as_size(s_.heads()), 4)}, 128, 0, main.queue(), widen_bounds, row.keys,
           row.place.sequence_stride, row.place.head_stride, s_.heads(), s_.kv_heads, s_.dim,
           bounds(layer) + as_size(pages_.setting().pages - 1) * as_size(s_.heads()) * 2 * as_size(s_.dim));
  }

  // Reports to the host the heads whose queries turned. Queries here are random, so that all have; the setting
  // determines which heads are corrected, and when.
  void compare(Stream& main, int step, int layer) {
    launch({blocks_for(as_size(s_.heads()), 4)}, 128, 0, main.queue(), compare_queries, query(step, layer),
           query(step + 1, layer), s_.heads(), s_.group(), s_.dim, 0.8f, cosines_.data(), flags_.data());
    main.copy(flags_host_.host<void>(), flags_.data(), flags_.size() * 4);
    main.synchronize();
  }

  void estimate(Stream& stream, const Selection& to, int step, int layer) {
    const ScoreShape shape{units_, s_.heads(), s_.group(), s_.dim};
    launch_scores<2>(stream.queue(), shape, 1.0f, query(step, layer), bounds(layer), to.raw.data(), nullptr);
    launch({as_unsigned(s_.heads())}, softmax_threads(units_), kSoftmaxShared, stream.queue(), softmax_mean, shape,
           to.raw.data(), to.reduced.data());
    to.topk(stream.queue(), to.reduced.data(), to.ids.data());
    if (zero_copy()) return;
    stream.copy(to.ids_host.host<void>(), to.ids.data(), to.ids.size() * 4);
    stream.synchronize();
  }

  // Selects, and makes attention wait for the missing pages of these heads.
  void recall_now(Stream& main, int step, int layer, int first, int last) {
    const Selection& from = now_[as_size(layer)];
    estimate(main, from, step, layer);
    if (zero_copy()) return pages_.gather(main, layer, from.ids.data(), first, last, checking_);
    worker_.wait(worker_.post([=, this, &from] { recall(from, layer, first, last); }));
    for (Stream& stream : copies_) stream.synchronize();
  }

  // Recalls for the next step, on other streams than the main one. A correction has already selected for all heads.
  void recall_ahead(Stream& main, int step, int layer, bool chosen) {
    main.record(attended_[as_size(layer)]);
    const Selection& from = chosen ? now_[as_size(layer)] : ahead_;
    const int first = chosen ? f_.corrected : 0;
    if (zero_copy()) {
      select_.wait(attended_[as_size(layer)]);
      if (!chosen) estimate(select_, from, step, layer);
      pages_.gather(select_, layer, from.ids.data(), first, s_.kv_heads, checking_);
      select_.record(arrived_[as_size(2 * layer)]);
      return pages_.end_step(layer);
    }
    tickets_[as_size(layer)] = worker_.post([=, this, &from] {
      select_.wait(attended_[as_size(layer)]);
      for (Stream& stream : copies_) stream.wait(attended_[as_size(layer)]);
      if (!chosen) estimate(select_, from, step, layer);
      recall(from, layer, first, s_.kv_heads);
      for (int lane = 0; lane < 2; ++lane) copies_[lane].record(arrived_[as_size(2 * layer + lane)]);
      pages_.end_step(layer);
    });
  }

  void recall(const Selection& from, int layer, int first, int last) {
    int turn = 0;
    for (int head = first; head < last; ++head) {
      if (!f_.hybrid) {
        copy_rows(from, layer, head);
      } else if (f_.buffers == 2) {
        copy_and_place(from, layer, head, turn, 0, s_.batch);
        turn = 1 - turn;
      } else {
        // The single buffer is free again when the conversion has been waited for.
        for (int b = 0; b < s_.batch; ++b) {
          copy_and_place(from, layer, head, 0, b, b + 1);
          copies_[0].synchronize();
        }
      }
    }
  }

  std::uint32_t missing_page(const Selection& from, int layer, int sequence, int head, int i) {
    const PageSetting& p = pages_.setting();
    const std::uint32_t page = from.ids_host.host<std::uint32_t>()[(sequence * s_.kv_heads + head) * p.chosen + i];
    pages_.note(layer, sequence, head, pages_.slot_of(layer, i), page);
    return page;
  }

  void copy_and_place(const Selection& from, int layer, int head, int lane, int begin, int end) {
    const PageSetting& p = pages_.setting();
    Stream& stream = copies_[lane];
    unsigned char* to = reinterpret_cast<unsigned char*>(staging_[as_size(lane)].data());
    for (int b = begin; b < end; ++b) {
      for (int i = 0; i < p.missing; ++i, to += pages_.head_bytes()) {
        const std::uint32_t page = missing_page(from, layer, b, head, i);
        pages_.copy(stream, to, pages_.host_page(layer, b, page) + as_size(head) * pages_.head_bytes(),
                    pages_.head_bytes());
      }
    }
    pages_.end_group(stream);
    const PlaceShape shape{
        end - begin,        Divisor(p.missing), Divisor(p.page), Divisor(s_.dim / 8), s_.kv_heads, head, p.sink,
        pages_.turn(layer), p.chosen,           p.slots()};
    launch({blocks_for(as_size(end - begin) * as_size(p.missing) * pages_.head_bytes() / 16, 256)}, 256, 0,
           stream.queue(), place_pages, shape, staging_[as_size(lane)].data(),
           pages_.keys(layer) + pages_.slot_row(begin, 0), pages_.values(layer) + pages_.slot_row(begin, 0));
  }

  void copy_rows(const Selection& from, int layer, int head) {
    const PageSetting& p = pages_.setting();
    const std::size_t row = as_size(s_.dim) * 2, pitch = row * as_size(s_.kv_heads),
                      width = as_size(s_.kv_heads * s_.dim);
    for (int b = 0; b < s_.batch; ++b) {
      for (int i = 0; i < p.missing; ++i) {
        const std::uint32_t page = missing_page(from, layer, b, head, i);
        const unsigned char* in = pages_.host_page(layer, b, page) + as_size(head) * row;
        const std::size_t out = pages_.slot_row(b, pages_.slot_of(layer, i)) + as_size(head * s_.dim);
        for (int t = 0; t < 2 * p.page; ++t) {
          Half* to = t < p.page ? pages_.keys(layer) : pages_.values(layer);
          copies_[0].copy(to + out + as_size(t % p.page) * width, in + as_size(t) * pitch, row);
        }
      }
    }
  }

  PipelineShape s_;
  FreeKvSetting f_;
  bool checking_;
  HostPages pages_;
  int units_;
  DeviceArray<Half> queries_, bounds_;
  DeviceArray<float> cosines_;
  DeviceArray<std::uint32_t> flags_;
  PinnedMemory flags_host_;
  // Selected on the main stream, one for each layer, because recalls may still read those of layers before; and on its
  // own stream.
  std::vector<Selection> now_;
  Selection ahead_;
  AttentionRun attention_;
  std::vector<DeviceArray<Half>> staging_;
  std::vector<long> tickets_;
  std::vector<Event> arrived_;  // per layer, one for each copy stream
  std::vector<Event> attended_;
  int last_step_ = 0;
  Stream select_, copies_[2];
  Backup backup_;
  Worker worker_;
};

void run(State& state) {
  PipelineShape s;
  if (!read_shape(state, s)) return;
  const std::string& layout = state.word("layout");
  if (layout != "hybrid" && layout != "nhd") throw UsageError("layout: '" + layout + "' is not hybrid or nhd");
  const FreeKvSetting f{state.integer("speculation") != 0, state.integer("correction") != 0, layout == "hybrid",
                        as_int(state, "buffers"), as_int(state, "corrected")};
  PageSetting p;
  if (!read_pages(state, s, f.hybrid, p)) return;
  if (f.buffers < 1 || f.buffers > 2) return state.skip("one staging buffer or two");
  // One switch at a time, from all on: FreeKV's own order of ablation.
  if (!f.hybrid && (f.buffers == 2 || f.speculation)) return state.skip("rows of a head need no staging buffer");
  if (f.buffers == 1 && f.speculation) return state.skip("speculation comes on top of two buffers");
  if (!f.speculation && f.correction) return state.skip("nothing is speculated, nothing to correct");
  if (p.recall != Recall::kCalls && !f.correction)
    return state.skip("other ways of recall come on top of all the rest");
  if (f.corrected > s.kv_heads) return state.skip("more heads corrected than there are");
  const double bounds = 4.0 * s.layers * p.pages * s.heads() * s.dim;
  if (too_large_pipeline(state, s, host_pages_device_bytes(s, p) + bounds, host_pages_host_bytes(s, p))) return;
  state_counts(state, {.attended = double{1} * p.slots() * p.page,
                       .scored = double{1} * p.pages - p.recent,
                       .fetched = double{1} * p.missing * p.page,
                       .fetched_runs = double{1} * p.missing,
                       .corrected_heads = f.correction ? double{1} * f.corrected : 0});
  run_scheme(state, s, [&] { return std::make_unique<FreeKv>(s, p, f, state); });
}

}  // namespace

Bench pipeline_freekv(const Machine&) {
  return pipeline_bench(
      "freekv", "decode steps with FreeKV's recall, each of its optimisations on or off",
      {numbers("budget", {2048}), numbers("fixed", {512}), numbers("page", {32}), numbers("missing", {4}),
       numbers("speculation", {1, 0}), numbers("correction", {1, 0}), numbers("corrected", {2}),
       words("layout", {"hybrid", "nhd"}), numbers("buffers", {2, 1}), recall_axis()},
      {numbers("budget", {96}), numbers("fixed", {16}), numbers("page", {16}), numbers("missing", {2}),
       numbers("corrected", {1})},
      run);
}

}  // namespace kvcast::kernels
