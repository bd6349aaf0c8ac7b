#include "serving/scheduler.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace kvcast::serving {

std::int64_t Scheduler::repeats(const Pass& pass, std::int64_t most) const {
  const std::int64_t free = pool_.free() - spare();
  const auto fits = [&](std::int64_t times) {
    std::int64_t lacking = 0;
    for (const std::vector<QueuedRequest*>* list : {&pass.decodes, &pass.padding}) {
      for (const QueuedRequest* entry : *list) {
        lacking += state_.lacking(*entry, entry->computed + times);
      }
      if (lacking > free) return false;
    }
    return true;
  };
  if (most <= 0 || fits(most)) return std::max<std::int64_t>(0, most);
  std::int64_t low = 0, high = most;  // fits; does not
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

void Scheduler::has_read(QueuedRequest& entry) {
  if (entry.known == 0) return;  // preempted since
  const std::int64_t resident = entry.footprint->decoding(entry.known, std::max(entry.computed, entry.known));
  if (resident < entry.held.count) pool_.give_back(entry.held, resident);
}

void Scheduler::drop_ended() {
  std::erase_if(state_.running, [](QueuedRequest* entry) {
    if (entry->all_done()) entry->listed = false;
    return entry->all_done();
  });
}

void Scheduler::receive() {
  const auto there_is = [&] { return !state_.delivered.empty() && state_.delivered.front().at <= state_.now; };
  while (there_is() && running() < rules_.max_num_seqs) {
    QueuedRequest& entry = *state_.delivered.front().entry;
    state_.delivered.pop_front();
    state_.running.push_back(&entry);
    if (rules_.engine == Engine::kVllmV1 || entry.done > 0) continue;
    entry.sampled = entry.done = 1;
    entry.outcome.first_token = entry.last_token = state_.now;
  }
  bool room = true;  // in the GPU's memory
  const auto gives = [&](QueuedRequest& entry, std::int64_t& there) { return room && (room = room_for(entry, there)); };
  const auto stages = [&](const QueuedRequest& entry) { return rules_.staging > 0 && entry.done == 0; };
  while (!state_.remote.empty() && !stages(*state_.remote.front())) {
    QueuedRequest& entry = *state_.remote.front();
    std::int64_t there = 0;
    if (!possible_at_all(entry)) {
      reject(state_.remote);
    } else if (gives(entry, there)) {
      state_.remote.pop_front();
      state_.expect(entry, there);
    } else {
      break;
    }
  }
  while (!state_.staged.empty() && state_.staged.front().at <= state_.now) {
    QueuedRequest& entry = *state_.staged.front().entry;
    std::int64_t there = 0;
    if (!gives(entry, there)) break;
    state_.staged.pop_front();
    state_.load_staged(entry, there);
  }
  stage();
}

// Requests go to pinned memory in order, behind those that were retracted, which are there.
void Scheduler::stage() {
  auto next = std::ranges::find_if(state_.remote, [](const QueuedRequest* e) { return e->done == 0; });
  while (rules_.staging > 0 && next != state_.remote.end()) {
    QueuedRequest& entry = **next;
    if (possible_at_all(entry) && !state_.staging_fits(entry)) return;
    next = state_.remote.erase(next);
    possible_at_all(entry) ? state_.stage(entry) : reject(entry);
  }
}

bool Scheduler::room_for(QueuedRequest&, std::int64_t&) { KVCAST_CHECK(false); }

void Scheduler::hold(QueuedRequest& entry) {
  has_read(entry);
  entry.kept = true;
  ++state_.kept;
}

void Scheduler::sent(QueuedRequest& entry) {
  finish(entry);
  entry.kept = false;
  --state_.kept;
}

void Scheduler::drop(std::int64_t id) {
  const auto is_it = [&](const QueuedRequest* entry) { return entry->request.id == id; };
  const auto waits = std::ranges::find_if(state_.remote, is_it);
  const auto holds = std::ranges::find_if(state_.expected, is_it);
  QueuedRequest* const entry = waits != state_.remote.end()     ? *waits
                               : holds != state_.expected.end() ? *holds
                                                                : nullptr;
  if (entry == nullptr) return;
  std::erase(state_.remote, entry), std::erase(state_.expected, entry);
  state_.release(*entry);
  --state_.in_service;
  state_.destroy(*entry);
}

void Scheduler::reject(std::deque<QueuedRequest*>& from) {
  QueuedRequest& entry = *from.front();
  from.pop_front();
  reject(entry);
}

void Scheduler::reject(QueuedRequest& entry) {
  entry.outcome.rejected = true;
  entry.outcome.scheduled = entry.outcome.first_token = state_.now;
  state_.leave(entry);
  state_.destroy(entry);
}

bool Scheduler::reject_head(bool stuck) {
  // Something that comes, or is there already, goes on; what was preempted for it can follow.
  if (stuck && !this->stuck()) return !state_.delivered.empty() && running() < rules_.max_num_seqs;
  std::deque<QueuedRequest*>& from = state_.waiting.empty() && stuck ? state_.remote : state_.waiting;
  if (from.empty() || (!stuck && possible_at_all(*from.front()))) return false;
  if (stuck && (state_.loading() || state_.unload())) return !state_.loading();
  reject(from);
  return true;
}

QueuedRequest* Scheduler::head() {
  while (reject_head(false)) {
  }
  return state_.waiting.empty() ? nullptr : state_.waiting.front();
}

bool Scheduler::possible_at_all(const QueuedRequest& entry) const {
  return entry.prompt() + entry.outputs() <= rules_.max_context && State::host_need(entry) <= rules_.host_bytes &&
         (rules_.staging <= 0 || state_.staging_need(entry) <= rules_.staging) && possible(entry);
}

std::int64_t Scheduler::peak(const QueuedRequest& entry, bool again) const {
  const std::int64_t prompt = entry.prompt(), last = last_length(entry);
  const Footprint& footprint = *entry.footprint;
  const std::int64_t decoding = last > prompt ? footprint.decoding(prompt, last) : 0;
  return std::max(decoding, footprint.reading(again ? prompt + entry.outputs() - 1 : prompt));
}

void Scheduler::admit_head(std::int64_t cached) {
  QueuedRequest& entry = *state_.waiting.front();
  state_.waiting.pop_front();
  state_.running.push_back(&entry);
  state_.start(entry, cached);
}

void Scheduler::preempt_tail() {
  QueuedRequest& entry = *state_.running.back();
  state_.running.pop_back();
  state_.waiting.push_front(&entry);
  state_.release(entry);
  state_.preempted(entry);
}

std::int64_t Scheduler::watermark() const {
  return static_cast<std::int64_t>(rules_.watermark * static_cast<double>(pool_.total()));
}

}  // namespace kvcast::serving
