// The requests of an engine and the memory that they hold: what every scheduler works on.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <limits>
#include <list>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "serving/blocks.hpp"
#include "serving/chains.hpp"
#include "serving/link.hpp"
#include "serving/queue.hpp"
#include "serving/tiers.hpp"

namespace kvcast::serving {

// A request in the engine. Counts of tokens include the passes that are in flight, except for `done`.
struct QueuedRequest {
  traffic::Request request;
  std::shared_ptr<const Footprint> footprint;
  Departure outcome;
  Chain chain;
  Holding held, window;     // of layers that keep all tokens; of those with a window
  bool cached = false;      // its blocks can be found by their content,
  bool offloaded = false;   // or those of its copy in host memory,
  bool chained = false;     // or what is kept of it, by its continuation
  std::int64_t named = 0;   // tokens of which full blocks can be found; of its own, they get their names when needed
  std::int64_t stored = 0;  // leading blocks that were offered to the caches behind the GPU
  std::int64_t loaded = 0;  // tokens that were loaded before it is admitted; it holds their blocks
  // Tokens of the sequence that an earlier request's policy has dropped. All counts of tokens are without them.
  std::int64_t gone = 0;
  double host = 0;             // bytes of host memory
  double staged = 0;           // likewise, in which a cache that is sent waits for the GPU's
  std::int64_t computed = 0;   // tokens of the sequence that are cached
  std::int64_t known = 0;      // tokens that are read, or were, before it decodes; 0: it waits
  std::int64_t sampled = 0;    // outputs
  std::int64_t done = 0;       // outputs whose passes have ended
  std::int64_t lost = 0;       // tokens that were computed before the last preemption
  Picoseconds last_token = 0;  // end of the last pass that samples one
  Picoseconds busy_until = 0;  // end of the last pass that it is in
  Picoseconds waits_since = traffic::kNever;
  std::int64_t in_flight = 0;  // passes that refer to it
  std::int64_t order = 0;      // in which requests were admitted last
  bool listed = true;          // the scheduler refers to it
  bool received = false;       // its cache came from elsewhere: memory is never that of reading it
  bool kept = false;           // its memory is held until the cache has been sent
  std::int32_t node = -1;      // of a radix tree, where the tokens end that it holds for this request,
  std::int64_t shared = 0;     // and their number

  std::list<QueuedRequest>::iterator self;

  std::int64_t prompt() const { return request.prompt_tokens - gone; }
  std::int64_t outputs() const { return request.output_tokens; }
  std::int64_t target() const { return prompt() + sampled; }
  bool reading() const { return computed < known; }
  bool all_sampled() const { return sampled >= outputs(); }
  bool all_done() const { return done >= outputs(); }
};

// The composition of a pass.
struct Pass {
  struct Read {
    QueuedRequest* entry = nullptr;
    Chunk chunk;
  };
  std::vector<QueuedRequest*> decodes;
  std::vector<QueuedRequest*> padding;  // have all their tokens and run along
  std::vector<Read> reads;
  double loaded = 0;     // bytes that are loaded layer by layer while it runs, or before it
  double stored = 0;     // that are copied behind the GPU after it
  Picoseconds read = 0;  // when media have read what it loads
  bool steady = false;   // the next has the same sequences unless a request ends or arrives, or memory is short
  bool closed = false;   // an arrival does not change that either

  bool empty() const { return decodes.empty() && padding.empty() && reads.empty(); }
  bool same_decodes(const Pass& other) const { return decodes == other.decodes && padding == other.padding; }
  void clear() {
    decodes.clear();
    padding.clear();
    reads.clear();
    loaded = stored = 0;
    read = 0;
    steady = closed = false;
  }
};

class State {
 public:
  State(const Rules& rules, const FootprintOf& footprint_of, Exit& exit, QueueObserver& observer);

  const Rules& rules;
  Blocks pool;
  std::deque<traffic::Request> arrivals;  // that no pass has seen, in order
  std::deque<QueuedRequest*> waiting;     // in the order in which they are tried
  std::vector<QueuedRequest*> running;    // in the order of their admission
  LinkQueues link;
  Tiers tiers;
  // Requests whose prompts are read elsewhere: those without memory, in order; those with it, to which the cache is on
  // its way; those to which it has come and that do not run yet.
  struct Delivery {
    QueuedRequest* entry = nullptr;
    Picoseconds at = 0;
  };
  std::deque<QueuedRequest*> remote;
  std::vector<QueuedRequest*> expected;
  std::deque<Delivery> delivered;
  std::deque<Delivery> staged;  // have come to pinned memory, and wait for the GPU's
  std::int64_t kept = 0;        // requests whose memory is held until the cache has been sent
  Picoseconds now = 0;
  std::int64_t in_service = 0;  // requests that were offered and have not left

  // Appends the requests that have arrived to those that wait, and puts those that are loaded at their head.
  void take_arrivals();
  // Passes have run for a time, or nothing has until then.
  void pass(Picoseconds time, std::int64_t decodes) {
    link.pass(time, static_cast<double>(decodes) * rules.recalled_bytes);
  }
  void idle_until(Picoseconds time);
  // When the first of those that are loading is, if nothing runs; kNever if there is none.
  Picoseconds next_loaded() const;
  // Blocks that a request needs once `tokens` are cached; of layers that keep all tokens.
  static std::int64_t need(const QueuedRequest& entry, std::int64_t tokens) {
    if (tokens <= entry.known && !entry.received) return entry.footprint->reading(tokens);
    return entry.footprint->decoding(entry.known, std::max(entry.known, tokens));
  }
  // Blocks of the pool that a request lacks for `tokens`; others may use those that leave its window meanwhile.
  std::int64_t lacking(const QueuedRequest& entry, std::int64_t tokens) const;
  // Gives back what has left the window, and takes the blocks that a request lacks for the next tokens, up to `tokens`;
  // false, and nothing taken, if the pool does not have them.
  bool grow(QueuedRequest& entry, std::int64_t tokens);

  // Content that is there for a request that waits.
  struct Found {
    Blocks::Hit hit, window;                 // in the pool, as QueuedRequest::held and window
    std::int64_t tokens = 0;                 // that need not be computed
    std::int64_t gone = 0;                   // of the sequence, before them
    std::int64_t loads = 0;                  // of the tokens, those that must be loaded
    std::array<double, kMostTiers> bytes{};  // of these, by the cache in which they lie
    std::optional<Chains::Key> kept;         // of what an earlier request's policy has kept
    double all_bytes() const { return std::accumulate(bytes.begin(), bytes.end(), 0.0); }
  };
  // In the pool, or where a chain lies.
  Found find(QueuedRequest& entry);
  // The same, and what the caches behind it have further. `there`: tokens that a scheduler's own cache has.
  void find_behind(QueuedRequest& entry, std::int64_t there, Found& found);
  // Blocks of the pool that a request lacks for `tokens` with what was found; `most`: in layers with a window, at most.
  std::int64_t lacking_beside(const QueuedRequest& entry, const Found& found, std::int64_t tokens,
                              std::int64_t most = std::numeric_limits<std::int64_t>::max()) const;
  // Enters full blocks of the first tokens, all of which are known, into the pool's cache.
  void name(QueuedRequest& entry, std::int64_t tokens);
  // Takes the blocks of the pool that were found.
  void share(QueuedRequest& entry, const Found& found);
  // Takes other content that was found: before the request starts, or is loaded.
  void use(QueuedRequest& entry, const Found& found);
  // Bytes of what was found that must come over the link.
  double link_bytes(const Found& found) const {
    return found.loads > 0 ? found.all_bytes() / rules.stored_bytes * rules.link_bytes : 0;
  }
  // Has media read what was found. Returns when they have.
  Picoseconds read_media(const Found& found);
  // Takes the head of the queue out, and the blocks of what was found, into which it is loaded.
  void load_head(const Found& found);
  // Blocks that requests which are or were loaded lack for all their tokens.
  std::int64_t promised() const;
  // Has a request that waits give up blocks that were loaded, the last first; false if there is none.
  bool unload();
  // The request has all its tokens: what is kept of it can be used again.
  void keep(QueuedRequest& entry);

  static double host_need(const QueuedRequest& entry) {
    return entry.footprint->host_bytes(entry.prompt() + entry.outputs());
  }
  bool loading() const { return !loading_.empty(); }
  // Requests that have memory to decode, and do not run yet.
  template <class Visit>
  void for_each_to_run(const Visit& visit) const {
    if (rules.staging <= 0) std::ranges::for_each(expected, visit);
    for (const Load& load : loading_) visit(load.entry);
    for (const Delivery& d : delivered) visit(d.entry);
  }
  // Returns whether the host memory of a request that waits is free, once `more` is taken.
  bool host_fits(const QueuedRequest& entry, double more = 0) const {
    return host_used_ + more + host_need(entry) <= rules.host_bytes;
  }

  // Begins to read a request whose first `cached` tokens are there. The caller moves it to where it belongs.
  void start(QueuedRequest& entry, std::int64_t cached);
  // Gives a request whose prompt is read elsewhere its memory; `there`: tokens of it that need not come. What a
  // retracted one had comes back at once.
  void expect(QueuedRequest& entry, std::int64_t there);
  // Bytes of pinned memory to which a cache is sent.
  double staging_need(const QueuedRequest& entry) const {
    return static_cast<double>(entry.footprint->decoding(entry.prompt(), entry.prompt())) * rules.stored_bytes;
  }
  bool staging_fits(const QueuedRequest& entry) const { return staged_used_ + staging_need(entry) <= rules.staging; }
  // Gives a request pinned memory instead, to which its cache is sent; and, once it has come, the GPU's, into which all
  // but the `there` first tokens are copied.
  void stage(QueuedRequest& entry);
  void load_staged(QueuedRequest& entry, std::int64_t there);
  // Adds the next tokens of a request to the pass; it has the memory.
  void advance(Pass& pass, QueuedRequest& entry, std::int64_t tokens);
  // Lets the decodes of a pass run further times; there is memory. `result`: one result has come since it was composed.
  void repeat(const Pass& pass, std::int64_t times, bool result);
  // Marks that a request has to be read again; its memory has been given back. The caller moves it.
  void preempted(QueuedRequest& entry);
  // Gives back all memory of a request.
  void release(QueuedRequest& entry);
  // Reports the end of a request.
  void leave(QueuedRequest& entry);
  // Takes a request out of those that wait.
  void withdraw(QueuedRequest& entry);
  // Destroys a request to which nothing refers.
  void destroy(QueuedRequest& entry) { entries_.erase(entry.self); }

 private:
  struct Load {
    QueuedRequest* entry = nullptr;
    double position = 0;         // in the link's queue
    Picoseconds not_before = 0;  // when media have read it
  };
  void name_blocks(QueuedRequest& entry, std::int64_t further);
  void name_full(QueuedRequest& entry, std::int64_t tokens);
  void store(QueuedRequest& entry, std::int64_t tokens);
  void receive_all(QueuedRequest& entry, std::int64_t computed);
  void find_kept(QueuedRequest& entry, Found& found);
  bool continues(QueuedRequest& entry, std::int64_t blocks, Found& found);
  void keep_chain(QueuedRequest& entry, std::int64_t tokens);
  void take_loaded();
  void prefetch(QueuedRequest& entry);
  void touch(QueuedRequest& entry, std::int64_t tokens);
  void give_host_back(QueuedRequest& entry);
  void give_staging_back(QueuedRequest& entry);
  std::int64_t window_end(std::int64_t tokens) const;
  void take(Holding& holding, std::int64_t blocks);
  double blocks_of_piece() const { return static_cast<double>(piece_) / static_cast<double>(rules.block); }

  const FootprintOf& footprint_of_;
  Exit& exit_;
  QueueObserver& observer_;
  std::list<QueuedRequest> entries_;
  double host_used_ = 0, staged_used_ = 0;
  std::int64_t piece_;  // tokens of a block of the caches behind the GPU
  Chains chains_;
  std::vector<Load> loading_;
  std::vector<std::int64_t> ends_;  // in blocks, of a prompt's parts
  std::int64_t admitted_ = 0;
};

}  // namespace kvcast::serving
