#include "serving/scheduler.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace kvcast::serving {

std::int64_t Scheduler::repeats(const Pass& pass, std::int64_t most) const {
  const std::int64_t free = pool_.free() - spare();
  const auto fits = [&](std::int64_t times) {
    std::int64_t lacking = 0;
    for (const std::vector<Entry*>* list : {&pass.decodes, &pass.padding}) {
      for (const Entry* entry : *list) {
        lacking += std::max<std::int64_t>(0, State::need(*entry, entry->computed + times) - entry->held.count);
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

void Scheduler::has_read(Entry& entry) {
  if (entry.known == 0) return;  // preempted since
  const std::int64_t resident = entry.footprint->decoding(entry.known, std::max(entry.computed, entry.known));
  if (resident < entry.held.count) pool_.give_back(entry.held, resident);
}

void Scheduler::drop_ended() {
  std::erase_if(state_.running, [](Entry* entry) {
    if (entry->all_done()) entry->listed = false;
    return entry->all_done();
  });
}

bool Scheduler::reject_head(bool stuck) {
  if (state_.waiting.empty() || (!stuck && possible_at_all(*state_.waiting.front()))) return false;
  if (stuck && (state_.loading() || state_.unload())) return !state_.loading();
  Entry& entry = *state_.waiting.front();
  state_.waiting.pop_front();
  entry.outcome.rejected = true;
  entry.outcome.scheduled = entry.outcome.first_token = state_.now;
  state_.leave(entry);
  state_.destroy(entry);
  return true;
}

Entry* Scheduler::head() {
  while (reject_head(false)) {
  }
  return state_.waiting.empty() ? nullptr : state_.waiting.front();
}

bool Scheduler::possible_at_all(const Entry& entry) const {
  return entry.prompt() + entry.outputs() <= rules_.max_context && State::host_need(entry) <= rules_.host_bytes &&
         possible(entry);
}

std::int64_t Scheduler::peak(const Entry& entry, bool again) const {
  const std::int64_t prompt = entry.prompt(), last = last_length(entry);
  const Footprint& footprint = *entry.footprint;
  const std::int64_t decoding = last > prompt ? footprint.decoding(prompt, last) : 0;
  return std::max(decoding, footprint.reading(again ? prompt + entry.outputs() - 1 : prompt));
}

void Scheduler::admit_head(std::int64_t cached) {
  Entry& entry = *state_.waiting.front();
  state_.waiting.pop_front();
  state_.running.push_back(&entry);
  state_.start(entry, cached);
}

void Scheduler::preempt_tail() {
  Entry& entry = *state_.running.back();
  state_.running.pop_back();
  state_.waiting.push_front(&entry);
  state_.release(entry);
  state_.preempted(entry);
}

std::int64_t Scheduler::watermark() const {
  return static_cast<std::int64_t>(rules_.watermark * static_cast<double>(pool_.total()));
}

}  // namespace kvcast::serving
