// Checks the consistency of a machine's numbers: finds contradictions that no device can have.
#pragma once

#include <optional>
#include <string>

#include "config/hardware.hpp"

namespace kvcast::config {

struct Contradiction {
  std::string key;    // key of the rejected number: "gpu.l2_bandwidth"
  std::string bound;  // key of a number that it violates: "gpu.hbm_bandwidth"
  std::string why;    // "4 TB/s is less than hbm_bandwidth (4.8 TB/s)"
};

// Returns the first one found; nothing if the numbers are consistent.
std::optional<Contradiction> contradiction(const Gpu& gpu);
std::optional<Contradiction> contradiction(const Link& link);
std::optional<Contradiction> contradiction(const Host& host);

}  // namespace kvcast::config
