// Pages in host memory and the slots on the device that they are recalled into, shared by ArkVale and FreeKV.
#pragma once

#include "device/copy_batch.hpp"
#include "pipeline/scheme.hpp"

namespace kvcast::kernels {

// Recall of a group of pages: a copy call for each piece, one call for all, or a kernel that reads host memory.
enum class Recall { kCalls, kBatched, kZeroCopy };
Axis recall_axis();

struct PageSetting {
  int page;                  // tokens
  int pages;                 // per sequence
  int sink, chosen, recent;  // slots on the device, in this order; the last token is in the last one
  int missing;               // pages that a step recalls, of the chosen ones
  bool by_head;              // host pages [KV head][K, V][page][dim], else [K, V][page][KV head][dim]
  Recall recall;
  int slots() const { return sink + chosen + recent; }
};
// Reads the axes page, budget, fixed (sink and window, each) and missing, in tokens except the last, and recall.
// Returns false if skipped.
bool read_pages(State& state, const PipelineShape& shape, bool by_head, PageSetting& setting);

// The host tracks which page is in which slot, for each layer, sequence and KV head.
class HostPages {
 public:
  HostPages(const PipelineShape& shape, const PageSetting& setting);

  const PageSetting& setting() const { return p_; }
  // Bytes of a page of all heads, and of one head.
  std::size_t page_bytes() const { return head_bytes() * as_size(s_.kv_heads); }
  std::size_t head_bytes() const { return as_size(p_.page) * as_size(s_.dim) * 4; }
  unsigned char* host_page(int layer, int sequence, std::uint32_t page) const;

  // Device slots: [sequences][slots][page][KV heads][dim].
  Half* keys(int layer) const { return keys_.data() + layer_size_ * as_size(layer); }
  Half* values(int layer) const { return values_.data() + layer_size_ * as_size(layer); }
  std::size_t slot_row(int sequence, int slot) const {  // elements before the first row of a slot
    return (as_size(sequence) * as_size(p_.slots()) + as_size(slot)) * as_size(p_.page) * as_size(s_.kv_heads * s_.dim);
  }
  AppendTo last_row(int layer) const;
  AttentionShape attention(int sm_count) const;
  const std::uint32_t* lists() const { return lists_.data(); }

  // The slot that the i-th missing page of this step takes, and its note; end_step() moves on to the next victims.
  int slot_of(int layer, int i) const { return p_.sink + (turn_[as_size(layer)] + i) % p_.chosen; }
  int turn(int layer) const { return turn_[as_size(layer)]; }
  void note(int layer, int sequence, int head, int slot, std::uint32_t page) {
    table(layer, sequence, head)[slot] = page;
  }
  void end_step(int layer) { turn_[as_size(layer)] = (turn(layer) + p_.missing) % p_.chosen; }

  // One piece of a recall by copies, and the end of a group of them: a batch is issued there. One thread at a time.
  void copy(Stream& stream, void* to, const void* from, std::size_t bytes);
  void end_group(Stream& stream);
  // Recall by a kernel, of all sequences: ids [sequences][parts][chosen] of device memory, whose first `missing` are
  // recalled. A part is a KV head if pages are laid out by head, and otherwise all heads; `last` is not included.
  // checking: the ids are also copied, since no one else tells the host.
  void gather(Stream& stream, int layer, const std::uint32_t* ids, int first, int last, bool checking);
  int parts() const { return p_.by_head ? s_.kv_heads : 1; }

  // Remembers, for a check, the present contents of a layer's slots.
  void remember(int layer) { shown_ = tables_[as_size(layer)], shown_gathers_ = gathered_.size(); }
  // Rows that attention saw: recalled ones from the host, sink and window from the device. All streams are idle.
  void rows(int layer, int sequence, int head, std::vector<float>& k, std::vector<float>& v) const;

 private:
  std::uint32_t* table(int layer, int sequence, int head) {
    return &tables_[as_size(layer)][as_size((sequence * s_.kv_heads + head) * p_.slots())];
  }
  // The pages that a kernel recalled.
  struct Gathered {
    int layer, turn, first, last;
    PinnedMemory ids;
  };
  std::vector<std::uint32_t> shown_pages(int layer, int sequence, int head) const;
  std::size_t pool() const { return host_.size() / page_bytes(); }
  void fill_host();
  void fill_slots();
  // Key (which 0) or value row of a host page.
  const Half* host_row(const unsigned char* page, int head, int which, int token) const;

  PipelineShape s_;
  PageSetting p_;
  std::size_t layer_size_;
  PinnedMemory host_;
  DeviceArray<Half> keys_, values_;
  DeviceArray<std::uint32_t> lists_;
  std::vector<std::vector<std::uint32_t>> tables_;
  std::vector<std::uint32_t> shown_;
  std::vector<Gathered> gathered_;
  std::size_t shown_gathers_ = 0;
  std::vector<int> turn_;
  CopyBatch batch_;
};

double host_pages_device_bytes(const PipelineShape& s, const PageSetting& p);
double host_pages_host_bytes(const PipelineShape& s, const PageSetting& p);

}  // namespace kvcast::kernels
