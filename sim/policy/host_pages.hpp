// Pages that live in host memory: backups, recalls, and the parameters and storage that offloading policies share.
#pragma once

#include <vector>

#include "policy/costs.hpp"

namespace kvcast::policy {

// How the pages lie in host memory, and with it what one copy can move.
enum class HostLayout {
  kNhd,  // [page, token, KV head, d]: one row of d elements a token for one head; a page of all heads is contiguous
  kHnd,  // [page, KV head, K or V, token, d]: keys and values of one head's page are contiguous
};

// Copies every page of the prompt to the host on the backup stream while the model goes on; transposes on the way for
// kHnd. python: the released code's loop over pages, on the thread that runs the model.
void back_up_prompt(const PrefillLayer& shape, int page, HostLayout layout, bool python, LayerOps& ops);
// The same for generated tokens: a page every `page` steps, spread evenly over the steps.
void back_up_token(const DecodeLayer& shape, int page, HostLayout layout, LayerOps& ops);

// Numbers of the chosen pages go to the host, on a stream; a thread waits for them.
struct IdPath {
  graph::Lane stream = graph::Lane::kCompute;
  graph::Lane thread = graph::Lane::kHost;
};
graph::OpId fetch_ids(double ids, const IdPath& path, LayerOps& ops, graph::OpId after);

// The whole cache in pinned host memory.
MemoryItem host_copy(const MemoryShape& shape);

Parameter runtime_parameter();

}  // namespace kvcast::policy
