#include "serving/spans.hpp"

#include <algorithm>
#include <utility>

namespace kvcast::serving {

const char* span_name(RequestSpan::Kind kind) {
  static constexpr const char* kNames[] = {"queued", "prefill", "decode", "preempted"};
  return kNames[static_cast<int>(kind)];
}

std::int64_t FreeNumbers::take() {
  if (returned_.empty()) return next_++;
  const std::int64_t number = returned_.top();
  returned_.pop();
  return number;
}

void SpanRecorder::keep(const RequestSpan& span) {
  if (span.to <= span.from) return;
  ++all_;
  if (spans_.size() < most_) spans_.push_back(span);
}

void SpanRecorder::close_decode(Request& request) {
  if (request.decode.tokens > 0) keep(request.decode);
  request.decode = {};
}

void SpanRecorder::ran(const Passes& run) {
  const Picoseconds end = run.start + run.time.sum(run.count);
  for (const PassPart& part : run.parts) {
    const std::int64_t id = part.request->id;
    const auto [at, admitted] = requests_.try_emplace(id);
    Request& request = at->second;
    if (admitted) {
      keep({RequestSpan::Kind::kQueued, id, 0, part.request->at_engine(), run.start, part.request->prompt_tokens});
    } else if (request.slot < 0) {
      keep({RequestSpan::Kind::kPreempted, id, 0, request.since, run.start, 0});
    }
    if (request.slot < 0) request.slot = slots_.take();
    request.busy_until = end;
    if (part.reads) {
      close_decode(request);
      keep({RequestSpan::Kind::kPrefill, id, request.slot, run.start, end, part.tokens});
      continue;
    }
    if (request.decode.to != run.start) close_decode(request);
    if (request.decode.tokens == 0)
      request.decode = {RequestSpan::Kind::kDecode, id, request.slot, run.start, run.start, 0};
    request.decode.to = end, request.decode.tokens += part.tokens * run.count;
  }
}

void SpanRecorder::preempted(const traffic::Request& request, Picoseconds now) {
  const auto found = requests_.find(request.id);
  if (found == requests_.end() || found->second.slot < 0) return;
  Request& r = found->second;
  // A pass that was under way when the request lost its memory still ends.
  r.since = std::max(now, r.busy_until);
  close_decode(r);
  slots_.give_back(std::exchange(r.slot, -1));
}

void SpanRecorder::ended(const Departure& outcome) {
  const auto found = requests_.find(outcome.request.id);
  if (found == requests_.end()) return;  // rejected
  close_decode(found->second);
  if (found->second.slot >= 0) slots_.give_back(found->second.slot);
  requests_.erase(found);
}

std::vector<RequestSpan> SpanRecorder::spans() const {
  std::vector<RequestSpan> spans = spans_;
  std::vector<RequestSpan*> waiting;
  for (RequestSpan& span : spans) {
    if (span.kind == RequestSpan::Kind::kQueued || span.kind == RequestSpan::Kind::kPreempted) waiting.push_back(&span);
  }
  std::ranges::stable_sort(waiting, {}, &RequestSpan::from);
  using End = std::pair<Picoseconds, std::int64_t>;  // of a span, and its place
  std::priority_queue<End, std::vector<End>, std::greater<>> ends;
  FreeNumbers places;
  for (RequestSpan* span : waiting) {
    for (; !ends.empty() && ends.top().first <= span->from; ends.pop()) places.give_back(ends.top().second);
    span->row = places.take();
    ends.push({span->to, span->row});
  }
  return spans;
}

}  // namespace kvcast::serving
