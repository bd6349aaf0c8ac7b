// The prompt's way through the model, layer by layer and chunk by chunk, one block a chunk.
#pragma once

#include <vector>

#include "lower/decode.hpp"

namespace kvcast::lower {

// All sequences of the batch are prefilled together in chunks of Workload::prefill_chunk tokens each (0: at once).
//
// Memory: a layer's KV pairs are taken when its chunk starts. After the last chunk the policy's hook runs, and once all
// of its work has finished the layer's full KV is given back and the policy's own share of that layer is taken;
// activations are held from the first op of a chunk to its last.
class Prefill final : public graph::WorkSource {
 public:
  Prefill(const DecodeSetting& setting, Owners& owners);
  bool next_block(std::vector<graph::Op>& out) override;
  // Id of the op after which the first token is on the host; −1 before the last block.
  graph::OpId first_token() const { return first_token_; }

 private:
  graph::OpId prefill_layer(Block& block, int layer, graph::OpId after, double start, double length, bool last);
  void settle_layer(Block& block, int layer, graph::OpId attention);
  void take_fixed(Block& block);

  DecodeSetting setting_;
  Owners& owners_;
  Events events_;
  std::vector<policy::MemoryItem> storage_;
  std::int64_t done_tokens_ = 0;
  graph::OpId next_id_ = 0, gate_ = -1, first_token_ = -1;
};

}  // namespace kvcast::lower
