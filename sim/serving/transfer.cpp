#include "serving/transfer.hpp"

#include <algorithm>

namespace kvcast::serving {

// Parts are sent one after the other as they are done: all of them are there at the latest of the times from a part on,
// each of which is when that part is done and what is left is sent from then on.
Picoseconds TransferLinks::send(const Parcel& parcel, const Outcome& read) {
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

}  // namespace kvcast::serving
