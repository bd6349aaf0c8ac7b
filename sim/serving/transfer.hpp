// Caches of prompts on their way from the replicas that read them to those that decode.
#pragma once

#include <cstdint>
#include <vector>

#include "config/deployment.hpp"
#include "serving/queue.hpp"

namespace kvcast::serving {

struct TransferRules {
  double rate = 1e9;                  // bytes/s, of each GPU to its counterpart
  Picoseconds latency = 0, post = 0;  // of a transfer; of a descriptor
  config::Transfer::Overlap overlap = config::Transfer::Overlap::kNone;
  double block_bytes = 0;        // of a block of the pool, of one GPU
  std::int64_t descriptors = 2;  // of a block
  std::int64_t layers = 1;
};

// Links that serve one transfer after the other, in the order of send(): a transfer takes its sender's and its
// receiver's.
class TransferLinks {
 public:
  TransferLinks(const TransferRules& rules, std::size_t senders, std::size_t receivers)
      : rules_(rules), senders_(senders, 0), receivers_(receivers, 0) {}

  struct Parcel {
    std::size_t from = 0, to = 0;
    double blocks = 0, other_bytes = 0;  // that are sent
    bool as_read = false;                // chunks are final when they have been read: nothing is chosen at the end
    Picoseconds reserved = 0;            // when the receiver has memory
  };
  double bytes(const Parcel& parcel) const { return parcel.blocks * rules_.block_bytes + parcel.other_bytes; }
  // Returns when all of it has come; `read`: the passes that read the prompt, which has ended.
  Picoseconds send(const Parcel& parcel, const Outcome& read);

 private:
  Picoseconds time(double bytes) const { return to_picos(bytes / rules_.rate); }

  TransferRules rules_;
  std::vector<Picoseconds> senders_, receivers_;  // from when they are free
};

}  // namespace kvcast::serving
