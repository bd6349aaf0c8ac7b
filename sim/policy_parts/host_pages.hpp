// Pages that live in host memory: backups, recalls, and the parameters and storage that offloading policies share.
#pragma once

#include <functional>

#include "policy/costs.hpp"

namespace kvcast::policy {

// How the pages lie in host memory, and with it what one copy can move.
enum class HostLayout {
  kNhd,  // [page, token, KV head, d]: one row of d elements a token for one head; a page of all heads is contiguous
  kHnd,  // [page, KV head, K or V, token, d]: keys and values of one head's page are contiguous
};

// Copies every page of the prompt to the host on the backup stream while the model goes on; transposes on the way for
// kHnd. python: the released code's loop over pages, on the thread that runs the model, while the device works on what
// was launched before (rooikeee/FreeKV, prefill_backup_pages).
void back_up_prompt(const PrefillLayer& shape, int page, HostLayout layout, bool python, LayerOps& ops);
// The same for generated tokens: a page every `page` steps, spread evenly over the steps.
void back_up_token(const DecodeLayer& shape, int page, HostLayout layout, LayerOps& ops);

// Numbers of the chosen pages go to the host, on a stream; a thread waits for them.
struct IdPath {
  graph::Lane stream = graph::Lane::kCompute;
  graph::Lane thread = graph::Lane::kHost;
};
graph::OpId fetch_ids(double ids, const IdPath& path, LayerOps& ops, graph::OpId after);

// Recall of missing pages by a host thread of its own, KV head after KV head, the sequences of a batch together.
//   kHnd: a copy of 2·page·d elements a page into a staging buffer, then a conversion on the same stream. Two buffers
//         alternate between two streams; with one, the thread waits for it after every head of every sequence.
//   kNhd: 2·page copies of d elements a page, straight to their places.
// Pieces are copied call by call, those at equal distances (the keys or the values of a page) in one strided call, by
// one batched call a head, or by a kernel that reads the host's memory.
enum class RecallCopies { kCalls, kStrided, kBatched, kZeroCopy };
struct RecallPath {
  HostLayout layout = HostLayout::kHnd;
  int page = 1;
  bool double_buffering = true;
  RecallCopies copies = RecallCopies::kCalls;  // kStrided: as kCalls where a page is contiguous (kHnd)
};
// Last ops on the two copy streams; −1 where a stream has none.
struct Recalled {
  graph::OpId a = -1, b = -1;
};
using HeadTest = std::function<bool(const HeadCounts&)>;
// The pages that the heads for which `which` holds have fetched.
Recalled recall_pages(const DecodeLayer& shape, const RecallPath& path, const HeadTest& which, graph::OpId after,
                      LayerOps& ops);

// Recalled pages that a head's selection gives up stay in HBM, in room for `tokens` tokens a head, rounded down to
// whole pages, until it is needed: those used longest ago go first, lower positions first among equals. What is chosen
// again meanwhile is not recalled again. It starts empty after the prompt. `page`: tokens that a recall brings at once.
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
