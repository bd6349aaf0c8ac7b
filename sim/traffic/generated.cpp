#include "traffic/generated.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace kvcast::traffic {
namespace {

// A key that names content; never 0, which names none.
std::uint64_t content_key(std::uint64_t seed, Purpose purpose, std::int64_t i, std::int64_t j = 0) {
  return stream_of(seed, purpose).child({static_cast<std::uint64_t>(i)}).bits(static_cast<std::uint64_t>(j)) | 1u;
}

std::int64_t turns_in(const config::Traffic& traffic) { return traffic.sessions ? traffic.sessions->turns : 1; }

}  // namespace

Generated::Generated(const config::Traffic& traffic)
    : traffic_(traffic),
      turns_(turns_in(traffic)),
      starts_((traffic.requests + turns_ - 1) / turns_),
      prompts_(traffic, Purpose::kPrompt),
      outputs_(traffic, Purpose::kOutput),
      gaps_(stream_of(traffic.seed, Purpose::kGap)),
      groups_(stream_of(traffic.seed, Purpose::kGroup)),
      slots_(traffic.concurrency) {
  cycle_.resize(static_cast<std::size_t>(traffic.shared_prefix.groups * traffic.shared_prefix.prompts));
  std::iota(cycle_.begin(), cycle_.end(), 0);
  const Stream order = stream_of(traffic.seed, Purpose::kQuestion);
  for (std::size_t left = cycle_.size(); left > 1; --left) std::swap(cycle_[left - 1], cycle_[order.below(left, left)]);
  draw_arrival();
}

// Prompts that come again are numbered group by group.
std::int64_t Generated::group_of(std::int64_t prompt) const {
  if (!cycle_.empty()) return prompt / traffic_.shared_prefix.prompts;
  const auto groups = static_cast<std::uint64_t>(traffic_.shared_prefix.groups);
  return static_cast<std::int64_t>(groups_.below(static_cast<std::uint64_t>(prompt), groups));
}

std::int64_t Generated::turns_of(std::int64_t session) const {
  return std::min(turns_, traffic_.requests - session * turns_);
}

void Generated::draw_arrival() {
  if (traffic_.arrivals != config::Traffic::Arrivals::kRate) return;
  elapsed_ += unit_gap(gaps_, started_, traffic_.process, traffic_.cv);
  arrival_ = later(0, elapsed_ * static_cast<double>(turns_) / traffic_.rate);
}

Picoseconds Generated::next_start() const {
  if (started_ == starts_) return kNever;
  return std::max(arrival_, slots_.free_from());
}

Picoseconds Generated::next() {
  return std::min(next_start(), later_turns_.empty() ? kNever : later_turns_.top().arrival);
}

Request Generated::take() {
  Request request;
  if (!later_turns_.empty() && later_turns_.top().arrival <= next_start()) {
    request = later_turns_.top();
    later_turns_.pop();
  } else {
    KVCAST_CHECK(next_start() != kNever);
    request = first_turn(started_);
    request.arrival = next_start();
    slots_.take();
    ++started_;
    draw_arrival();
  }
  request.id = taken_++;
  return request;
}

Request Generated::first_turn(std::int64_t start) const {
  Request request;
  const std::int64_t number = start * turns_;
  // A prompt that comes again has the same length.
  const bool again = !cycle_.empty();
  const std::int64_t prompt = again ? cycle_[static_cast<std::size_t>(start) % cycle_.size()] : start;
  request.prompt_tokens = prompts_.of(again ? prompt : number);
  request.output_tokens = scaled_outputs(traffic_, outputs_.of(number));
  std::int64_t own = request.prompt_tokens;
  if (traffic_.shared_prefix.tokens > 0) {
    const std::int64_t shared = std::min(traffic_.shared_prefix.tokens, request.prompt_tokens);
    request.content.push_back({content_key(traffic_.seed, Purpose::kGroup, group_of(prompt)), shared});
    own -= shared;
  }
  if (again && own > 0) {
    request.content.push_back({content_key(traffic_.seed, Purpose::kQuestion, prompt), own});
    own = 0;
  }
  if (!traffic_.sessions) return request;
  request.session = start;
  if (own > 0) request.content.push_back({content_key(traffic_.seed, Purpose::kContent, start), own});
  if (turns_of(start) > 1) request.answer_key = content_key(traffic_.seed, Purpose::kAnswer, start);
  return request;
}

Request Generated::next_turn(const Request& before, Picoseconds now) const {
  Request request;
  request.session = before.session;
  request.turn = before.turn + 1;
  request.arrival = later(now, traffic_.sessions->think_time);
  const std::int64_t added = traffic_.sessions->turn_tokens;
  request.prompt_tokens = before.prompt_tokens + before.output_tokens + added;
  request.output_tokens = scaled_outputs(traffic_, outputs_.of(request.session * turns_ + request.turn));
  request.content = before.content;
  request.content.push_back({before.answer_key, before.output_tokens});
  request.content.push_back({content_key(traffic_.seed, Purpose::kContent, request.session, request.turn), added});
  if (request.turn + 1 < turns_of(request.session)) {
    request.answer_key = content_key(traffic_.seed, Purpose::kAnswer, request.session, request.turn);
  }
  return request;
}

void Generated::ended(const Request& request, Picoseconds now) {
  if (request.session >= 0 && request.turn + 1 < turns_of(request.session)) {
    later_turns_.push(next_turn(request, now));
  } else {
    slots_.give(later(now, traffic_.think_time));
  }
}

}  // namespace kvcast::traffic
