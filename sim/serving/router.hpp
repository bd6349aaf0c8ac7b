// Chooses the replica to which a request goes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "config/deployment.hpp"
#include "serving/rules.hpp"
#include "traffic/request.hpp"

namespace kvcast::serving {

class Router {
 public:
  virtual ~Router() = default;
  // Returns the number of a replica. load: by replica, requests that went there and have not left. Each request is
  // asked for once, in order of arrival.
  virtual std::size_t route(const traffic::Request& request, std::span<const std::int64_t> load) = 0;
};

// round_robin: one after the other. least_loaded: the smallest load; among equals the next after the last that was
// chosen. prefix: the replica that got most of the prompt's leading blocks before, by the rules of SGLang's router.
// block: tokens; recorded: blocks that the router remembers of each replica.
std::unique_ptr<Router> make_router(config::Routing routing, std::int64_t block, std::int64_t recorded);

// The same for replicas that have these rules. The router's blocks are of 64 tokens at least, as those of routers in
// use (32 to 256 tokens); it remembers as many tokens of a replica as fit in its pool.
std::unique_ptr<Router> make_router(config::Routing routing, const Rules& rules);

}  // namespace kvcast::serving
