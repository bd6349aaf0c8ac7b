// Backups of filled pages to host memory, on a stream and by a thread of their own.
#pragma once

#include "cuda/convert.cuh"
#include "pipeline/host_pages.hpp"
#include "pipeline/worker.hpp"

namespace kvcast::kernels {

class Backup {
 public:
  Backup(const PipelineShape& shape, HostPages& pages)
      : s_(shape),
        pages_(pages),
        staged_(pages.setting().by_head ? as_size(shape.batch) * pages.page_bytes() / 2 : 8) {}
  ~Backup() { worker_.settle(); }

  // A layer's step: one step in `page` backs up the layer's last page, all sequences together, which is how often a
  // page fills.
  void next(Stream& main, int layer) {
    if (++count_ % pages_.setting().page != 0) return;
    worker_.wait_all();  // the event can be reused
    main.record(appended_);
    worker_.post([this, layer] { save(layer); });
  }
  void finish() {
    worker_.wait_all();
    stream_.synchronize();
  }

 private:
  void save(int layer) {
    const PageSetting& p = pages_.setting();
    stream_.wait(appended_);
    for (int b = 0; b < s_.batch; ++b) {
      const Half* keys = pages_.keys(layer) + pages_.slot_row(b, p.slots() - 1);
      const Half* values = pages_.values(layer) + pages_.slot_row(b, p.slots() - 1);
      unsigned char* to = pages_.host_page(layer, b, static_cast<std::uint32_t>(p.pages - 1));
      if (!p.by_head) {
        stream_.copy(to, keys, pages_.page_bytes() / 2);
        stream_.copy(to + pages_.page_bytes() / 2, values, pages_.page_bytes() / 2);
        continue;
      }
      Half* staged = staged_.data() + as_size(b) * pages_.page_bytes() / 2;
      launch({blocks_for(pages_.page_bytes() / 16, 256)}, 256, 0, stream_.queue(), nhd_to_hnd,
             PageShape{1, p.page, s_.kv_heads, s_.dim}, keys, values, staged);
      stream_.copy(to, staged, pages_.page_bytes());
    }
  }

  PipelineShape s_;
  HostPages& pages_;
  DeviceArray<Half> staged_;
  long count_ = 0;
  Event appended_;
  Stream stream_;
  Worker worker_;
};

}  // namespace kvcast::kernels
