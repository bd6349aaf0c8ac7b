// Pages in host memory: backups, recalls, and the parameters and storage of offloading policies.
#pragma once

#include <functional>

#include "policy/costs.hpp"

namespace kvcast::policy {

// Layout of pages in host memory, which determines what one copy can move.
enum class HostLayout {
  kNhd,  // [page, token, KV head, d]: one row of d elements per token and head; a page of all heads is contiguous
  kHnd,  // [page, KV head, K or V, token, d]: keys and values of one head's page are contiguous
};

// Copies every page of the prompt to the host on the backup stream while the model continues, transposing them for
// kHnd. python: runs the released code's loop over pages on the model's thread, while the device executes what was
// launched before (rooikeee/FreeKV, prefill_backup_pages).
void back_up_prompt(const PrefillLayer& shape, int page, HostLayout layout, bool python, LayerOps& ops);
// Copies generated tokens likewise: one page every `page` steps, spread evenly over the steps.
void back_up_token(const DecodeLayer& shape, int page, HostLayout layout, LayerOps& ops);

// The path by which the numbers of selected pages reach the host: the stream that copies them, and the thread that
// waits for them.
struct IdPath {
  Lane stream = Lane::kCompute;
  Lane thread = Lane::kHost;
};
OpId fetch_ids(double ids, const IdPath& path, LayerOps& ops, OpId after);
// The CPU gathers `pairs` single pairs into a pinned buffer, and one copy transfers them. region_bytes: distance in
// memory over which the CPU finds one.
OpId gather_pairs(double pairs, double region_bytes, const Dims& m, LayerOps& ops, OpId after);

// Recall of missing pages by a host thread, one KV head after the other, all sequences of a batch together.
//
// kHnd: one copy of 2·page·d elements per page into a staging buffer, then a conversion on the same stream. Two buffers
// alternate between two streams; with one, the thread waits for it after every head of every sequence.
//
// kNhd: 2·page copies of d elements per page, directly to their destination.
//
// Pieces are copied by one call each, by one strided call for pieces at equal distances (the keys or the values of a
// page), or by one batched call per head. kZeroCopy needs no thread: recall_by_kernel.
enum class RecallCopies { kCalls, kStrided, kBatched, kZeroCopy };
struct RecallPath {
  HostLayout layout = HostLayout::kHnd;
  int page = 1;
  bool double_buffering = true;
  RecallCopies copies = RecallCopies::kCalls;  // kStrided: like kCalls if a page is contiguous (kHnd)
};
// The last ops on the two copy streams; −1 if a stream has none.
struct Recalled {
  OpId a = -1, b = -1;
};
using HeadTest = std::function<bool(const HeadCounts&)>;
// Recalls the fetched pages of the heads for which `which` returns true.
Recalled recall_pages(const DecodeLayer& shape, const RecallPath& path, const HeadTest& which, OpId after,
                      LayerOps& ops);

// Recalls the fetched pages of the same heads by one kernel on a stream, which reads them over the link and stores them
// where attention reads them. Page numbers stay on the device. Returns `after` if nothing is missing.
OpId recall_by_kernel(const DecodeLayer& shape, const RecallPath& path, const HeadTest& which, Lane lane, OpId after,
                      LayerOps& ops);

// A page cache on the GPU. Recalled pages that leave a head's selection stay in HBM, in space for `tokens` tokens per
// head, rounded down to whole pages. The least recently used page is replaced first, the lowest position first among
// ties. Pages in this cache are not recalled again. It is empty after the prompt. `page`: tokens of one recall.
struct KeptPages {
  std::int64_t tokens = 0, page = 1;
};
std::unique_ptr<Policy> keep_recalled(const KeptPages& kept, std::unique_ptr<Policy> inner);

// The whole cache in pinned host memory.
MemoryItem host_copy(const MemoryShape& shape);

Parameter runtime_parameter();
Parameter recall_parameter();
RecallCopies parse_recall(const std::string& name);

}  // namespace kvcast::policy
