// Runs with traffic: requests through an engine's queue, with times of passes from simulated ones.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/cancel.hpp"
#include "config/run.hpp"
#include "policy/policy.hpp"
#include "replay/replay.hpp"
#include "result/result.hpp"
#include "serving/fleet.hpp"
#include "serving/footprint.hpp"
#include "serving/rules.hpp"
#include "study/shared_work.hpp"

namespace kvcast::study {

// The lengths of a run's requests, read once.
struct RequestLengths {
  std::int64_t requests = 0;
  std::int64_t shortest = 1, longest = 1;  // prompts
  // The same of the further draws by which intervals are learnt, if requests are drawn at random.
  std::int64_t shortest_drawn = 1, longest_drawn = 1, most_outputs_drawn = 1;
  std::int64_t most_outputs = 1;             // of a request
  double mean_prompt = 1, mean_outputs = 1;  // tokens
  std::vector<std::int64_t> replayed;        // prompt lengths that replays are made for, ascending
  std::vector<double> shares;                // of the requests to which each of these is nearest in ratio
};
// Reads all requests of the traffic; those beyond `max_context` are left out. Throws UserError if none is left.
RequestLengths request_lengths(const config::Traffic& traffic, std::int64_t max_context);

// Sets what a run with traffic has in place of a workload: a batch of one request of mean lengths, and each trace at
// each of the replayed lengths.
void derive_workload(config::Run& run, const policy::Descriptor& policy, const RequestLengths& lengths);

// The memory of the pool of a run's engine, in blocks, with its interval, and what requests hold of it under the
// policy.
struct ServiceMemory {
  std::int64_t blocks = 0, low = 0, high = 0;
  double tokens_of_block = 16;  // tokens of the uncompressed cache that a block holds
  double host_bytes = 0;        // pinned memory for requests
  double block_bytes = 0;       // of a block of the pool, of one GPU
  double copied_bytes = 0;      // of as many tokens in the policy's own copies in host memory; 0: it has none
  serving::WindowRules windows;
  std::shared_ptr<const serving::Footprint> footprint;
};
ServiceMemory service_memory(const config::Run& run, const policy::Policy& policy, const serving::Rules& rules,
                             double attended);

// Tokens that the memory of a prompt counts as once it has been read: the least with which a continuation begins.
std::int64_t kept_tokens(const config::Run& run, const policy::Policy& policy, std::int64_t prompt, double attended);

// The rules of a run's engine, without the size of its pool.
serving::Rules service_rules(const config::Run& run);
// The tokens that layers with a window keep in the run's engine. Throws UserError if it cannot have what the run asks.
config::SchedulerRules::SlidingCache sliding_cache(const config::Run& run, const serving::Rules& rules);
// The share of a GPU's memory that the run's engine takes, as the engine defines it.
double memory_utilization(const config::Run& run, const serving::Rules& rules);
// Bytes of a GPU that a batch under a serving engine cannot have: what its rules leave for neither weights, a pass nor
// the cache. Nothing for frameworks that are no serving engine.
std::optional<Value> engine_reserved(const config::Run& run);
// Those rules as a run would write them: every key that the engine has.
config::SchedulerRules written_rules(const config::Run& run);

// The transfers between replicas as a run would write them; and its replicas.
config::Transfer written_transfer(const config::Run& run);
serving::Fleet fleet_of(const config::Run& run, const ServiceMemory& memory);

// Called with every request that ends, in the order of their ends.
using RequestLog = std::function<void(const serving::Departure&)>;

struct ServiceInput {
  const config::Run* run = nullptr;
  RequestLengths lengths;
  simulate::PassInput passes;
  double attended = 0;                         // KV pairs that a head attends to, mean
  bool intervals = true;                       // serve again at the ends of intervals and with other draws
  RequestLog log;                              // of the nominal run; may be empty
  serving::QueueObserver* observer = nullptr;  // likewise
  Cancel cancel;
  SharedWork* shared = nullptr;                      // has tables of passes, by
  std::string times_key;                             // a text that determines their times
  std::vector<std::shared_ptr<const void>> replays;  // that `passes` refers to; a table keeps them
  int threads = 1;
};

// Simulates a batch of so many requests of mean lengths. Its intervals are those of the passes' times.
using Reference = std::function<result::Result(int batch)>;

// Serves the run's requests: as they are, at the ends of the intervals of times and of memory, and with other draws of
// as many requests. Returns the reference at the mean number that ran, with the service and its intervals. Throws
// UserError if the model leaves no memory for a cache.
result::Result serve_requests(const ServiceInput& input, const Reference& reference);

}  // namespace kvcast::study
