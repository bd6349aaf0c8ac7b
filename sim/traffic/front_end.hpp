// The way of requests to the engine: HTTP and tokenising.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "traffic/request.hpp"

namespace kvcast::traffic {

class FrontEnd final : public RequestSource {
 public:
  // `in_turn`: that a request occupies the front end, one request at a time in the order of their arrivals; `further`:
  // that passes besides, and holds up no other request.
  FrontEnd(std::unique_ptr<RequestSource> clients, Picoseconds in_turn, Picoseconds further)
      : clients_(std::move(clients)), in_turn_(in_turn), further_(further) {}

  // When the next request is through.
  Picoseconds next() override {
    const Picoseconds arrival = clients_->next();
    return arrival == kNever ? kNever : std::max(arrival, free_) + in_turn_ + further_;
  }
  Request take() override {
    const Picoseconds through = next();
    Request request = clients_->take();
    request.front_end = through - request.arrival;
    free_ = through - further_;
    return request;
  }
  bool open() const override { return clients_->open(); }
  void ended(const Request& request, Picoseconds now) override { clients_->ended(request, now); }

 private:
  std::unique_ptr<RequestSource> clients_;
  Picoseconds in_turn_, further_, free_ = 0;
};

}  // namespace kvcast::traffic
