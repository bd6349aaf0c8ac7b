#include "serving/replica.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace kvcast::serving {
namespace {

std::unique_ptr<Scheduler> make_scheduler(State& state) {
  switch (state.rules.engine) {
    case Engine::kVllmV1:
      return make_vllm_v1(state);
    case Engine::kVllmV0:
      return make_vllm_v0(state);
    case Engine::kSglang:
      return make_sglang(state);
    case Engine::kTrtllm:
      return make_trtllm(state);
    case Engine::kStatic:
      return make_static_batch(state);
  }
  KVCAST_CHECK(false);
}

}  // namespace

Replica::Replica(StepTimes& times, const Rules& rules, const FootprintOf& footprint_of, Exit& exit,
                 QueueObserver& observer)
    : times_(times),
      rules_(rules),
      observer_(observer),
      state_(rules, footprint_of, exit, observer),
      scheduler_(make_scheduler(state_)) {}

void Replica::offer(traffic::Request request) {
  const Picoseconds arrival = request.at_engine();
  if (flights_.empty()) {
    state_.idle_until(arrival);
  } else if (open_ && !closed()) {
    cut_before(arrival);
  }
  ++state_.in_service;
  state_.arrivals.push_back(std::move(request));
}

// Returns whether an arrival changes nothing in the last flight; one whose prompt is read elsewhere is tried, or
// rejected, whatever waits.
bool Replica::closed() const { return flights_.back().pass.closed && rules_.role != Role::kDecode; }

// Something happens that the engine sees when it composes next.
void Replica::changes(Picoseconds now) {
  if (flights_.empty()) {
    state_.idle_until(now);
  } else if (open_) {
    cut_before(now);
  }
}

void Replica::deliver(std::int64_t id, Picoseconds now) {
  changes(now);
  const auto at = std::ranges::find(state_.expected, id, [](const QueuedRequest* entry) { return entry->request.id; });
  KVCAST_CHECK(at != state_.expected.end());
  (rules_.staging > 0 ? state_.staged : state_.delivered).push_back({*at, now});
  state_.expected.erase(at);
}

void Replica::drop(std::int64_t id, Picoseconds now) {
  changes(now);
  scheduler_->drop(id);
}

void Replica::sent(std::int64_t id, Picoseconds now) {
  changes(now);
  const auto at = std::ranges::find_if(gone_, [&](const QueuedRequest* e) { return e->kept && e->request.id == id; });
  KVCAST_CHECK(at != gone_.end());
  scheduler_->sent(**at);
  destroy_gone();
}

bool Replica::fill() {
  // The last pass of a run is the one during which the next is composed.
  while (!waiting_ && std::ssize(flights_) < rules_.in_flight && (flights_.empty() || flights_.back().count == 1)) {
    waiting_ = !launch();
  }
  if (!flights_.empty()) return false;
  waiting_ = false;
  return scheduler_->reject_head(true);
}

// Requests in the queue that did not come just now.
std::int64_t Replica::waiting_before() const {
  const auto came = [this](const QueuedRequest* entry) { return entry->waits_since >= state_.now; };
  return state_.waiting.rend() - std::find_if_not(state_.waiting.rbegin(), state_.waiting.rend(), came);
}

bool Replica::launch() {
  state_.take_arrivals();
  if (rules_.role == Role::kDecode) scheduler_->receive();
  Flight flight = std::exchange(spare_, {});
  flight.pass.clear();
  const double stored = state_.link.sent_out();
  flight.waiting_before = waiting_before();
  scheduler_->compose(flight.pass);
  if (flight.pass.empty() && !(state_.remote.empty() && state_.staged.empty())) {
    scheduler_->receive();  // SGLang counts requests that have ended until it composes
    scheduler_->compose(flight.pass);
  }
  if (flight.pass.empty()) {
    spare_ = std::move(flight);
    return false;
  }
  flight.start = flights_.empty() ? state_.now : std::max(state_.now, flights_.back().end());
  flight.time = time_of(flight.pass);
  flight.pass.stored = state_.link.sent_out() - stored;
  if (flight.pass.loaded > 0 || rules_.blocking_copies) load(flight);
  KVCAST_CHECK(flight.time.first >= 0 && flight.time.steps >= 1);
  flight.blocks = scheduler_->used();
  flight.count = 1 + repeats(flight);
  KVCAST_CHECK(flight.end() >= flight.start);
  flights_.push_back(std::move(flight));
  open_ = flights_.back().count > 1;
  if (!open_) {
    commit();
  } else if (!state_.arrivals.empty() && !closed()) {
    cut_before(state_.arrivals.front().at_engine());
  }
  for (const auto* coming : {&state_.delivered, &state_.staged}) {
    if (open_ && !coming->empty() && coming->front().at > state_.now) cut_before(coming->front().at);
  }
  return true;
}

// Layers wait for what they read: a pass takes at least as long as its last layer's; or it waits before and after it.
void Replica::load(Flight& flight) {
  const Pass& pass = flight.pass;
  const double recalled = static_cast<double>(pass.decodes.size()) * rules_.recalled_bytes;
  const Picoseconds loading = pass.loaded > 0 ? state_.link.time_in(pass.loaded, recalled) : 0;
  if (rules_.blocking_copies) {
    flight.time.first += std::max<Picoseconds>(0, pass.read - flight.start) + loading;
    flight.time.first += to_picos(state_.link.seconds_out(pass.stored));
  } else {
    flight.time.first = std::max(flight.time.first, loading);
  }
  state_.link.send_in(pass.loaded);
}

StepTime Replica::time_of(const Pass& pass) {
  decoding_.clear();
  chunks_.clear();
  for (const std::vector<QueuedRequest*>* list : {&pass.decodes, &pass.padding}) {
    for (const QueuedRequest* entry : *list) decoding_.push_back({entry->known, entry->computed});
  }
  for (const Pass::Read& read : pass.reads) chunks_.push_back(read.chunk);
  return times_.time(decoding_, chunks_);
}

// Passes after the first that are sure to have the same sequences.
std::int64_t Replica::repeats(const Flight& flight) {
  const Pass& pass = flight.pass;
  if (!rules_.skip || !pass.steady || !pass.reads.empty()) return 0;
  if (state_.loading() || (rules_.write_back && state_.tiers.any())) return 0;
  if (rules_.in_flight > 1) {
    // Results that are in flight must not change anything either.
    if (flights_.empty() || flights_.back().ends || !flights_.back().pass.reads.empty()) return 0;
    if (!flights_.back().pass.same_decodes(pass)) return 0;
  }
  std::int64_t most = flight.time.steps - 1;
  for (const QueuedRequest* entry : pass.decodes) most = std::min(most, entry->outputs() - entry->sampled);
  return scheduler_->repeats(pass, most);
}

// Leaves the passes of the open run that are composed before a request arrives; one that arrives when a pass is
// composed is seen.
void Replica::cut_before(Picoseconds arrival) {
  Flight& flight = flights_.back();
  if (flight.start + flight.time.sum(flight.count - 1) < arrival) return;
  std::int64_t low = 0, high = flight.count - 1;  // begins before it, or is the first; does not
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (flight.start + flight.time.sum(middle) < arrival ? low : high) = middle;
  }
  flight.count = 1 + low;
  if (low == 0) commit();
}

// Notes all passes of the last flight.
void Replica::commit() {
  Flight& flight = flights_.back();
  report(flight);
  const std::int64_t further = flight.count - 1;
  state_.repeat(flight.pass, further, open_ && rules_.in_flight > 1);
  scheduler_->repeated(further);
  settle(flight);
  open_ = false;
}

void Replica::report(const Flight& flight) {
  const Pass& pass = flight.pass;
  Passes run;
  run.start = flight.start;
  run.time = flight.time;
  run.count = flight.count;
  run.decodes = std::ssize(pass.decodes) + std::ssize(pass.padding);
  run.reads = std::ssize(pass.reads);
  for (const Pass::Read& read : pass.reads) run.read_tokens += read.chunk.added;
  run.waiting = std::ssize(state_.waiting), run.waiting_before = flight.waiting_before;
  run.running = scheduler_->running();
  run.blocks = flight.blocks;
  gaps_.clear();
  for (const QueuedRequest* entry : pass.decodes) add_gap(flight.start - entry->last_token);
  for (const Pass::Read& read : pass.reads) {
    if (read.chunk.last() && read.entry->sampled > 1) add_gap(flight.start - read.entry->last_token);
  }
  run.gaps = gaps_;
  arrivals_.clear();
  for (const traffic::Request& request : state_.arrivals) arrivals_.push_back(request.at_engine());
  run.arrivals = arrivals_;
  if (observer_.wants_parts()) run.parts = parts_of(pass);
  observer_.ran(run);
}

void Replica::add_gap(Picoseconds since) {
  if (gaps_.empty() || gaps_.back().since != since) gaps_.push_back({since, 0});
  ++gaps_.back().sequences;
}

std::span<const PassPart> Replica::parts_of(const Pass& pass) {
  parts_.clear();
  for (const Pass::Read& read : pass.reads) {
    parts_.push_back({&read.entry->request, read.chunk.added, true, read.chunk.last()});
  }
  for (const QueuedRequest* entry : pass.decodes) parts_.push_back({&entry->request, 1, false, true});
  for (const QueuedRequest* entry : pass.padding) parts_.push_back({&entry->request, 1, false, false});
  return parts_;
}

// Notes in the requests of a run that they are in it.
void Replica::settle(Flight& flight) {
  const Picoseconds end = flight.end();
  flight.ends = false;
  for (QueuedRequest* entry : flight.pass.decodes) {
    ++entry->in_flight;
    entry->last_token = entry->busy_until = end;
    flight.ends |= entry->all_sampled();
  }
  for (QueuedRequest* entry : flight.pass.padding) ++entry->in_flight;
  for (const Pass::Read& read : flight.pass.reads) {
    QueuedRequest& entry = *read.entry;
    ++entry.in_flight;
    entry.busy_until = end;
    Departure& outcome = entry.outcome;
    if (entry.waits_since != traffic::kNever) {
      outcome.waited += flight.start - std::exchange(entry.waits_since, traffic::kNever);
    }
    if (outcome.scheduled == traffic::kNever) outcome.scheduled = flight.start;
    if (outcome.first_read == traffic::kNever) outcome.first_read = end;
    outcome.last_read = flight.start, outcome.last_chunk = read.chunk.added;
    if (entry.sampled == (read.chunk.last() ? 1 : 0)) add_reading(outcome, read.chunk, flight);
    if (!read.chunk.last()) continue;
    entry.last_token = end;
    flight.ends |= entry.all_sampled();
  }
}

// A pass that reads a request before its first token.
void Replica::add_reading(Departure& outcome, const Chunk& chunk, const Flight& flight) {
  const Pass& pass = flight.pass;
  const Picoseconds length = flight.end() - flight.start;
  const bool alone = pass.reads.size() == 1 && pass.decodes.empty() && pass.padding.empty();
  outcome.reading += length;
  outcome.reading_alone += alone ? length : std::min(length, times_.time({}, {&chunk, 1}).first);
}

// Passes of the first flight that end together: all, or all but the last if further ones are composed during that.
std::int64_t Replica::landing(const Flight& flight) const {
  return rules_.in_flight == 1 ? flight.count : std::max<std::int64_t>(1, flight.count - 1);
}

Picoseconds Replica::next() const {
  if (flights_.empty()) return state_.next_loaded();
  return flights_.front().start + flights_.front().time.sum(landing(flights_.front()));
}

void Replica::land() {
  if (open_ && flights_.size() == 1) commit();
  waiting_ = false;
  if (flights_.empty()) return state_.idle_until(next());
  Flight& flight = flights_.front();
  const std::int64_t n = landing(flight);
  for (std::int64_t j = 0; j < n && links(); ++j) state_.pass(flight.time.at(j), std::ssize(flight.pass.decodes));
  state_.now = flight.start + flight.time.sum(n);
  ended_.clear();
  for (QueuedRequest* entry : flight.pass.decodes) count_results(*entry, n);
  for (const Pass::Read& read : flight.pass.reads) {
    if (!read.chunk.last()) continue;
    count_results(*read.entry, 1);
    if (!read.entry->all_done()) scheduler_->has_read(*read.entry);
  }
  std::ranges::sort(ended_, {}, &QueuedRequest::order);  // in which their blocks are given back
  for (QueuedRequest* entry : ended_) {
    rules_.role == Role::kPrefill ? scheduler_->hold(*entry) : scheduler_->finish(*entry);
    state_.leave(*entry);
  }
  if (!ended_.empty()) scheduler_->drop_ended();
  for (QueuedRequest* entry : ended_) {
    if (entry->known == 0) state_.withdraw(*entry);  // preempted while its last token was in flight
  }
  gone_.insert(gone_.end(), ended_.begin(), ended_.end());
  if (n < flight.count) {
    flight.time.first = flight.time.at(n);
    flight.start = state_.now;
    flight.count -= n;
    return;
  }
  take_down();
}

void Replica::count_results(QueuedRequest& entry, std::int64_t n) {
  if (entry.done == 0) entry.outcome.first_token = state_.now;
  entry.done += n;
  if (entry.all_done()) ended_.push_back(&entry);
}

void Replica::take_down() {
  const Pass& pass = flights_.front().pass;
  for (QueuedRequest* entry : pass.decodes) --entry->in_flight;
  for (QueuedRequest* entry : pass.padding) --entry->in_flight;
  for (const Pass::Read& read : pass.reads) --read.entry->in_flight;
  spare_ = std::move(flights_.front());
  flights_.pop_front();
  destroy_gone();
}

void Replica::destroy_gone() {
  std::erase_if(gone_, [&](QueuedRequest* entry) {
    const bool unused = entry->in_flight == 0 && !entry->listed && !entry->kept;
    if (unused) state_.destroy(*entry);
    return unused;
  });
}

}  // namespace kvcast::serving
