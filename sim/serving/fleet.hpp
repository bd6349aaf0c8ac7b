// Replicas that serve requests together, on one clock.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/cancel.hpp"
#include "config/deployment.hpp"
#include "serving/queue.hpp"

namespace kvcast::serving {

// Caches of prompts on their way from the replicas that read them to those that decode.
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
  Picoseconds send(const Parcel& parcel, const Departure& read);

 private:
  Picoseconds time(double bytes) const { return to_picos(bytes / rules_.rate); }

  TransferRules rules_;
  std::vector<Picoseconds> senders_, receivers_;  // from when they are free
};

// Requests go to `replicas` replicas that only read prompts; what these keep of a prompt is sent to those of the fleet,
// which only decode.
struct Readers {
  std::int64_t replicas = 0;  // 0: prompts are read where they are decoded
  TransferRules transfer;
};

struct Fleet {
  std::int64_t replicas = 1;
  config::Routing routing = config::Routing::kRoundRobin;
  int threads = 1;  // at most so many; the results do not depend on it
  Readers readers = {};
  bool in_order = false;  // reports of all replicas come in order of time, from one thread
};

// The parts that a replica works with. `times` and the footprints are used from one thread at a time only if no other
// replica has the same; reports of a replica come from one thread at a time.
struct ReplicaParts {
  StepTimes* times = nullptr;
  FootprintOf footprint_of;
  QueueObserver* observer = nullptr;
};

// Serves all requests of the source as serve() does, with the same rules in each replica; those that read prompts have
// the numbers after the others'. Replicas run in parallel if they do not depend on each other: round robin over a
// source that is open(). Ends are reported by the replica that decodes.
//
// Prefill and decode apart: vLLM requests memory to decode a prompt once it has been read, computes its last token
// again and samples the first output there. TensorRT-LLM requests it then as well, SGLang at the request's arrival, and
// in both the first output comes with the cache. All request it at arrival if caches are sent while prompts are read.
// Blocks of a prompt are held until its cache has come. With Rules::staging that memory is in the host, and the GPU's
// is requested when the cache has come, in the order of that; it is copied before the request runs.
void serve_fleet(traffic::RequestSource& source, const Fleet& fleet, const Rules& rules,
                 const std::function<ReplicaParts(std::int64_t)>& parts_of, const Cancel& cancel = {});

}  // namespace kvcast::serving
