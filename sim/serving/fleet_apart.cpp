// Prefill and decode apart.
#include <span>
#include <unordered_map>

#include "base/error.hpp"
#include "serving/fleet_clock.hpp"

namespace kvcast::serving {
namespace {

class ApartClock final : public FleetClock {
 public:
  ApartClock(traffic::RequestSource& source, std::deque<Member>& members, const Fleet& fleet, const Rules& rules)
      : FleetClock(source, members, make_router(fleet.routing, rules)),
        // A replica that decodes knows no more than another of prompts that were read elsewhere.
        decoders_(make_router(
            fleet.routing == config::Routing::kRoundRobin ? fleet.routing : config::Routing::kLeastLoaded, rules)),
        first_(fleet.replicas),
        engine_(rules.engine),
        early_(rules.engine == Engine::kSglang || fleet.readers.transfer.overlap != config::Transfer::Overlap::kNone),
        block_(rules.block),
        links_(fleet.readers.transfer, fleet.readers.replicas, first_) {}

  void left(std::size_t k, Departure& outcome, Picoseconds now) override {
    const std::int64_t id = outcome.request.id;
    const auto at = requests_.find(id);
    if (at == requests_.end()) return;  // rejected where prompts are read, at the same time
    k < first_ ? decoded(id, at->second, outcome, now) : read(k, id, at->second, outcome, now);
  }

  void reserved(std::size_t, std::int64_t id, std::int64_t there, Picoseconds now) override {
    const auto at = requests_.find(id);
    if (at == requests_.end()) return;
    Request& r = at->second;
    r.reading.reserved = now, r.there = there;
    if (r.read) send(id, r);
  }

 private:
  struct Request {
    traffic::Request request;
    std::size_t reader = 0, decoder = 0;
    Departure reading;       // of its prompt
    bool asked = false;      // for memory where it is decoded
    bool read = false;       // its prompt has been
    bool ended = false;      // it was rejected before that
    std::int64_t there = 0;  // tokens that need not be sent
  };
  // Follows from something in a replica, when that is done.
  struct Event {
    enum class Kind { kAsk, kSent, kDrop } kind = Kind::kAsk;
    std::size_t replica = 0;
    std::int64_t id = 0;
    Picoseconds at = 0;
  };
  using Delivery = std::pair<Picoseconds, std::int64_t>;

  // SGLang and TensorRT-LLM make the first output with the prompt, so that nothing may follow.
  bool decodes(const traffic::Request& request) const {
    return engine_ == Engine::kVllmV1 || request.output_tokens > 1;
  }

  void hand_over() override {
    traffic::Request request = source_.take();
    const std::size_t k = first_ + router_->route(request, std::span(load_).subspan(first_));
    Request& r = requests_[request.id];
    r.request = request, r.reader = k;
    if (early_ && decodes(request)) ask(r, request);
    request.output_tokens = 1;
    offer(k, std::move(request));
  }

  void ask(Request& r, traffic::Request request) {
    r.decoder = decoders_->route(request, std::span(load_).first(first_));
    r.asked = true;
    offer(r.decoder, std::move(request));
  }

  // Its prompt has been read, or it was rejected.
  void read(std::size_t k, std::int64_t id, Request& r, Departure& outcome, Picoseconds now) {
    if (r.ended) {
      if (!outcome.rejected) follow(Event::Kind::kSent, k, id, now);
      requests_.erase(id);
      return;
    }
    r.read = true;
    outcome.reserved = r.reading.reserved;
    r.reading = outcome;
    r.reading.request = r.request;
    r.reading.prefilled = now;
    if (r.reading.rejected || !decodes(r.request)) {
      if (r.asked) follow(Event::Kind::kDrop, r.decoder, id, now);
      if (!r.reading.rejected) follow(Event::Kind::kSent, k, id, now);
      r.reading.last_token = now;
      return end(id, r, r.reading, now);
    }
    if (!r.asked) return follow(Event::Kind::kAsk, 0, id, now);
    if (r.reading.reserved != traffic::kNever) send(id, r);
  }

  // It has all its tokens, or was rejected.
  void decoded(std::int64_t id, Request& r, Departure& outcome, Picoseconds now) {
    if (outcome.rejected) {
      r.ended = !r.read;
      if (r.read) follow(Event::Kind::kSent, r.reader, id, now);
    }
    const Departure& reading = r.reading;
    outcome.request = r.request;
    if (r.read) {
      outcome.scheduled = outcome.rejected ? now : reading.scheduled;
      outcome.preemptions += reading.preemptions, outcome.recomputed_tokens += reading.recomputed_tokens;
      outcome.waited += reading.waited;
      outcome.hit_tokens = reading.hit_tokens, outcome.loaded_tokens = reading.loaded_tokens;
      outcome.reading = reading.reading, outcome.reading_alone = reading.reading_alone;
      outcome.prefilled = reading.prefilled, outcome.reserved = reading.reserved, outcome.received = reading.received;
      outcome.sent_bytes = reading.sent_bytes;
    }
    end(id, r, outcome, now);
  }

  void end(std::int64_t id, Request& r, Departure& outcome, Picoseconds now) {
    members_[r.decoder].report(outcome);
    const traffic::Request request = r.request;
    if (!r.ended) requests_.erase(id);
    source_.ended(request, now);
  }

  void send(std::int64_t id, Request& r) {
    const auto footprint = members_[r.decoder].footprint_of()(r.request);
    const std::int64_t prompt = r.request.prompt_tokens;
    TransferLinks::Parcel parcel{r.reader - first_, r.decoder};
    parcel.blocks = static_cast<double>(footprint->decoding(prompt, prompt) - r.there / block_);
    parcel.other_bytes = footprint->host_bytes(prompt);
    parcel.as_read = footprint->keeps_all();
    parcel.reserved = r.reading.reserved;
    r.reading.sent_bytes = links_.bytes(parcel);
    r.reading.received = links_.send(parcel, r.reading);
    deliveries_.emplace(r.reading.received, id);
  }

  void follow(Event::Kind kind, std::size_t k, std::int64_t id, Picoseconds now) {
    events_.push_back({kind, k, id, now});
  }

  Picoseconds next_event() override {
    if (!events_.empty()) return events_.front().at;
    return deliveries_.empty() ? traffic::kNever : deliveries_.top().first;
  }

  void happen(Picoseconds now) override {
    if (events_.empty()) {
      const Request& r = requests_.at(deliveries_.top().second);
      members_[r.decoder].replica().deliver(r.request.id, now);
      members_[r.reader].replica().sent(r.request.id, now);
      touch(r.decoder), touch(r.reader);
      deliveries_.pop();
      return;
    }
    const Event event = events_.front();
    events_.pop_front();
    if (event.kind == Event::Kind::kAsk) {
      Request& r = requests_.at(event.id);
      traffic::Request request = r.request;
      request.arrival = now, request.front_end = 0;
      return ask(r, std::move(request));
    }
    Replica& replica = members_[event.replica].replica();
    event.kind == Event::Kind::kSent ? replica.sent(event.id, now) : replica.drop(event.id, now);
    touch(event.replica);
  }

  std::unique_ptr<Router> decoders_;
  std::size_t first_;  // of those that read prompts
  Engine engine_;
  bool early_;  // memory to decode is requested at arrival: what is sent while the prompt is read needs it
  std::int64_t block_;
  TransferLinks links_;
  std::unordered_map<std::int64_t, Request> requests_;
  std::deque<Event> events_;
  std::priority_queue<Delivery, std::vector<Delivery>, std::greater<>> deliveries_;
};

}  // namespace

std::unique_ptr<FleetClock> make_apart_clock(traffic::RequestSource& source, std::deque<Member>& members,
                                             const Fleet& fleet, const Rules& rules) {
  return std::make_unique<ApartClock>(source, members, fleet, rules);
}

}  // namespace kvcast::serving
