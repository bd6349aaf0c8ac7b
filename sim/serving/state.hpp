// The requests of an engine and the memory that they hold: what every scheduler works on.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <vector>

#include "serving/blocks.hpp"
#include "serving/queue.hpp"

namespace kvcast::serving {

// A request in the engine. Counts of tokens include the passes that are in flight, except for `done`.
struct Entry {
  traffic::Request request;
  std::shared_ptr<const Footprint> footprint;
  Outcome outcome;
  Chain chain;
  Holding held;
  bool cached = false;         // its blocks can be found by their content
  double host = 0;             // bytes of host memory
  std::int64_t computed = 0;   // tokens of the sequence that are cached
  std::int64_t known = 0;      // tokens that are read, or were, before it decodes; 0: it waits
  std::int64_t sampled = 0;    // outputs
  std::int64_t done = 0;       // outputs whose passes have ended
  std::int64_t lost = 0;       // tokens that were computed before the last preemption
  Picoseconds last_token = 0;  // end of the last pass that samples one
  std::int64_t in_flight = 0;  // passes that refer to it
  std::int64_t order = 0;      // in which requests were admitted last
  bool listed = true;          // the scheduler refers to it
  std::int32_t node = -1;      // of a radix tree, where the tokens end that it holds for this request,
  std::int64_t shared = 0;     // and their number

  std::list<Entry>::iterator self;

  std::int64_t prompt() const { return request.prompt_tokens; }
  std::int64_t outputs() const { return request.output_tokens; }
  std::int64_t target() const { return prompt() + sampled; }
  bool reading() const { return computed < known; }
  bool all_sampled() const { return sampled >= outputs(); }
  bool all_done() const { return done >= outputs(); }
};

// The composition of a pass.
struct Pass {
  struct Read {
    Entry* entry = nullptr;
    Chunk chunk;
  };
  std::vector<Entry*> decodes;
  std::vector<Entry*> padding;  // have all their tokens and run along
  std::vector<Read> reads;
  bool steady = false;  // the next has the same sequences unless a request ends or arrives, or memory is short
  bool closed = false;  // an arrival does not change that either

  bool empty() const { return decodes.empty() && padding.empty() && reads.empty(); }
  bool same_decodes(const Pass& other) const { return decodes == other.decodes && padding == other.padding; }
  void clear() {
    decodes.clear();
    padding.clear();
    reads.clear();
    steady = closed = false;
  }
};

class State {
 public:
  State(const Rules& rules, const FootprintOf& footprint_of, Exit& exit, Observer& observer);

  const Rules& rules;
  Blocks pool;
  std::deque<traffic::Request> arrivals;  // that no pass has seen, in order
  std::deque<Entry*> waiting;             // in the order in which they are tried
  std::vector<Entry*> running;            // in the order of their admission
  Picoseconds now = 0;
  std::int64_t in_service = 0;  // requests that were offered and have not left

  // Appends the requests that have arrived to those that wait.
  void take_arrivals();
  // Blocks that a request needs once `tokens` are cached.
  static std::int64_t need(const Entry& entry, std::int64_t tokens) {
    return tokens <= entry.known ? entry.footprint->reading(tokens) : entry.footprint->decoding(entry.known, tokens);
  }
  // Takes the blocks that a request lacks for `tokens`; false, and nothing taken, if the pool does not have them.
  bool grow(Entry& entry, std::int64_t tokens);
  static double host_need(const Entry& entry) { return entry.footprint->host_bytes(entry.prompt() + entry.outputs()); }
  // Returns whether the host memory of a request that waits is free, once `more` is taken.
  bool host_fits(const Entry& entry, double more = 0) const {
    return host_used_ + more + host_need(entry) <= rules.host_bytes;
  }

  // Begins to read a request whose first `cached` tokens are there. The caller moves it to where it belongs.
  void start(Entry& entry, std::int64_t cached);
  // Adds the next tokens of a request to the pass; it has the memory.
  void advance(Pass& pass, Entry& entry, std::int64_t tokens);
  // Lets the decodes of a pass run further times; there is memory. `result`: one result has come since it was composed.
  void repeat(const Pass& pass, std::int64_t times, bool result);
  // Marks that a request has to be read again; its memory has been given back. The caller moves it.
  void preempted(Entry& entry);
  // Gives back all memory of a request.
  void release(Entry& entry);
  // Reports the end of a request.
  void leave(Entry& entry);
  // Takes a request out of those that wait.
  void withdraw(Entry& entry);
  // Destroys a request to which nothing refers.
  void destroy(Entry& entry) { entries_.erase(entry.self); }

 private:
  void name_blocks(Entry& entry, std::int64_t further);

  const FootprintOf& footprint_of_;
  Exit& exit_;
  Observer& observer_;
  std::list<Entry> entries_;
  double host_used_ = 0;
  std::int64_t admitted_ = 0;
};

}  // namespace kvcast::serving
