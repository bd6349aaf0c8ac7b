// ArkVale-style blocking recall (Chen et al., NeurIPS 2024): the heads of a layer select together; the host waits for
// the selected pages' numbers, copies each missing page in its own layout, and attention waits for the copies. With
// recall=zero_copy the host learns no numbers: a kernel between top-k and attention reads the pages.
#include "cuda/topk.cuh"
#include "pipeline/all.hpp"
#include "pipeline/backup.hpp"
#include "pipeline/host_pages.hpp"
#include "pipeline/select.cuh"

namespace kvcast::kernels {

namespace {

class ArkVale final : public Scheme {
 public:
  ArkVale(const PipelineShape& s, const PageSetting& p, const State& state)
      : s_(s),
        checking_(state.checking()),
        pages_(s, p),
        units_(p.pages - p.recent),
        query_(as_size(s.batch * s.q_heads * s.dim)),
        bounds_(half_normals(231, as_size(s.layers) * as_size(p.pages) * as_size(s.heads()) * 2 * as_size(s.dim))),
        scores_(as_size(s.batch) * as_size(units_)),
        ids_(as_size(s.batch * p.chosen)),
        ids_host_(ids_.size() * 4),
        topk_(s.batch, units_, p.chosen),
        attention_(pages_.attention(state.machine().sm_count), s.dim),
        backup_(s, pages_) {}

  AppendTo append_to(int, int layer) override { return pages_.last_row(layer); }
  Half* query(int, int) override { return query_.data(); }

  const Half* attend(Stream& main, int, int layer) override {
    const PageSetting& p = pages_.setting();
    const AppendTo row = pages_.last_row(layer);
    backup_.next(main, layer);
    Half* bounds = bounds_.data() + bounds_.size() / as_size(s_.layers) * as_size(layer);
    launch({blocks_for(as_size(s_.heads()), 4)}, 128, 0, main.queue(), widen_bounds, row.keys,
           row.place.sequence_stride, row.place.head_stride, s_.heads(), s_.kv_heads, s_.dim,
           bounds + as_size(p.pages - 1) * as_size(s_.heads()) * 2 * as_size(s_.dim));
    launch({as_unsigned(units_), as_unsigned(s_.batch)}, 256, 64, main.queue(), score_layer, query_.data(), bounds,
           s_.kv_heads, s_.group(), s_.dim, scores_.data());
    topk_(main.queue(), scores_.data(), ids_.data());
    if (p.recall == Recall::kZeroCopy) {
      pages_.gather(main, layer, ids_.data(), 0, pages_.parts(), checking_);
      pages_.end_step(layer);
    } else {
      main.copy(ids_host_.host<void>(), ids_.data(), ids_.size() * 4);
      main.synchronize();
      recall(layer);
      main.wait(recalled_);
    }
    attention_(main.queue(), query_.data(), pages_.keys(layer), pages_.values(layer), pages_.lists());
    if (checking_) pages_.remember(layer);
    return attention_.out().data();
  }
  void finish() override { backup_.finish(); }
  void check(State& state) override {
    compare_output(
        state, s_, query_.data(), attention_.out().data(),
        [&](int b, int h, std::vector<float>& k, std::vector<float>& v) { pages_.rows(s_.layers - 1, b, h, k, v); });
  }

 private:
  // The keys of a page of all heads are one piece, its values another. The main stream has been waited for: no
  // attention reads these slots.
  void recall(int layer) {
    const PageSetting& p = pages_.setting();
    const std::size_t half = pages_.page_bytes() / 2;
    for (int b = 0; b < s_.batch; ++b) {
      for (int i = 0; i < p.missing; ++i) {
        const std::uint32_t page = ids_host_.host<std::uint32_t>()[b * p.chosen + i];
        const unsigned char* from = pages_.host_page(layer, b, page);
        const int slot = pages_.slot_of(layer, i);
        pages_.copy(copies_, pages_.keys(layer) + pages_.slot_row(b, slot), from, half);
        pages_.copy(copies_, pages_.values(layer) + pages_.slot_row(b, slot), from + half, half);
        for (int h = 0; h < s_.kv_heads; ++h) pages_.note(layer, b, h, slot, page);
      }
    }
    pages_.end_group(copies_);
    copies_.record(recalled_);
    pages_.end_step(layer);
  }

  PipelineShape s_;
  bool checking_;
  HostPages pages_;
  int units_;
  DeviceArray<Half> query_, bounds_;
  DeviceArray<float> scores_;
  DeviceArray<std::uint32_t> ids_;
  PinnedMemory ids_host_;
  TopkRun topk_;
  AttentionRun attention_;
  Event recalled_;
  Stream copies_;
  Backup backup_;
};

void run(State& state) {
  PipelineShape s;
  if (!read_shape(state, s)) return;
  PageSetting p;
  if (!read_pages(state, s, false, p)) return;
  const double bounds = 4.0 * s.layers * p.pages * s.heads() * s.dim;
  if (too_large_pipeline(state, s, host_pages_device_bytes(s, p) + bounds, host_pages_host_bytes(s, p))) return;
  state_counts(state, {.attended = double{1} * p.slots() * p.page,
                       .scored = double{1} * p.pages - p.recent,
                       .fetched = double{1} * p.missing * p.page,
                       .fetched_runs = double{1} * p.missing});
  run_scheme(state, s, [&] { return std::make_unique<ArkVale>(s, p, state); });
}

}  // namespace

Bench pipeline_arkvale(const Machine&) {
  return pipeline_bench(
      "arkvale", "decode steps that wait for the pages they miss, chosen by all heads of a layer together",
      {numbers("budget", {2048}), numbers("fixed", {512}), numbers("page", {32}), numbers("missing", {4}),
       recall_axis()},
      {numbers("budget", {96}), numbers("fixed", {16}), numbers("page", {16}), numbers("missing", {2})}, run);
}

}  // namespace kvcast::kernels
