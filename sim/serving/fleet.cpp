#include "serving/fleet.hpp"

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "serving/fleet_clock.hpp"

#include <algorithm>

namespace kvcast::serving {

// Parts are sent one after the other as they are done: all of them are there at the latest of the times from a part on,
// each of which is when that part is done and what is left is sent from then on.
Picoseconds TransferLinks::send(const Parcel& parcel, const Departure& read) {
  using Overlap = config::Transfer::Overlap;
  const double all = bytes(parcel);
  const bool overlaps = rules_.overlap != Overlap::kNone, layers = rules_.overlap == Overlap::kLayers;
  double last = all;  // bytes of the last pass
  if (overlaps && parcel.as_read)
    last *= static_cast<double>(read.last_chunk) / static_cast<double>(read.request.prompt_tokens);
  const double before = all - last, parts = layers ? static_cast<double>(rules_.layers) : 1;
  const auto first_part = [&](Picoseconds from, Picoseconds to) {
    return from + static_cast<Picoseconds>(static_cast<double>(to - from) / parts);
  };
  Picoseconds end =
      std::max(first_part(read.last_read, read.prefilled) + time(last), read.prefilled + time(last / parts));
  if (before > 0) {
    const Picoseconds all_before = std::max(first_part(read.scheduled, read.first_read) + time(before),
                                            read.last_read + time(std::min(last, before) / parts));
    end = std::max(end, all_before + time(last));
  }
  Picoseconds& sender = senders_[parcel.from];
  Picoseconds& receiver = receivers_[parcel.to];
  end = std::max(end, std::max({parcel.reserved, sender, receiver}) + time(all));
  sender = receiver = end;
  const double posted = parcel.blocks * static_cast<double>(rules_.descriptors) * (all > 0 ? last / all : 0) / parts;
  return end + rules_.latency + static_cast<Picoseconds>(posted * static_cast<double>(rules_.post));
}

namespace {

constexpr int kWindow = 1 << 14;  // requests that are dealt out at a time

// Round robin over requests that arrive whatever the replicas do: each replica is a queue of its own.
void serve_independent(traffic::RequestSource& source, std::deque<Member>& members, int threads, const Cancel& cancel) {
  const std::size_t workers = std::clamp<std::size_t>(threads, 1, members.size());
  std::size_t next = 0;
  while (source.next() != traffic::kNever) {
    for (int i = 0; i < kWindow && source.next() != traffic::kNever; ++i) {
      members[next++ % members.size()].deal(source.take());
    }
    const Picoseconds until = source.next();
    parallel_for(workers, threads, [&](std::size_t worker) {
      for (std::size_t k = worker; k < members.size(); k += workers) members[k].advance(until, cancel);
    });
  }
}

}  // namespace

void serve_fleet(traffic::RequestSource& source, const Fleet& fleet, const Rules& rules,
                 const std::function<ReplicaParts(std::int64_t)>& parts_of, const Cancel& cancel) {
  check(rules);
  if (fleet.replicas < 1) throw UserError("at least 1 replica is needed");
  const bool apart = fleet.readers.replicas > 0;
  const bool independent = !apart && fleet.routing == config::Routing::kRoundRobin && source.open() && !fleet.in_order;
  Rules decoding = rules, reading = rules;
  if (apart) {
    decoding.role = Role::kDecode, reading.role = Role::kPrefill;
    reading.staging = 0;
    decoding.tiers.clear();  // what is found again is a prompt's
    decoding.prefix_caching = rules.prefix_caching && rules.engine == Engine::kVllmV1;
    check(decoding);
  }
  std::deque<Member> members;
  std::unique_ptr<FleetClock> clock;
  if (apart) {
    clock = make_apart_clock(source, members, fleet, rules);
  } else if (!independent) {
    clock = std::make_unique<FleetClock>(source, members, make_router(fleet.routing, rules));
  }
  for (std::int64_t k = 0; k < fleet.replicas + fleet.readers.replicas; ++k)
    members.emplace_back(static_cast<std::size_t>(k), parts_of(k), k < fleet.replicas ? decoding : reading,
                         clock.get());
  clock == nullptr ? serve_independent(source, members, fleet.threads, cancel) : clock->run(cancel);
  for (Member& member : members) member.end();
}

}  // namespace kvcast::serving
