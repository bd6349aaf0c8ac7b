// Numbers of a machine that contradict each other: what no device can do.
#pragma once

#include <optional>
#include <string>

#include "config/hardware.hpp"

namespace kvcast::config {

struct Contradiction {
  std::string key;    // of the number that is refused: "gpu.l2_bandwidth"
  std::string bound;  // of a number that it breaks: "gpu.hbm_bandwidth"
  std::string why;    // "4 TB/s is less than hbm_bandwidth (4.8 TB/s)"
};

// The first one found; nothing where the numbers are consistent.
std::optional<Contradiction> contradiction(const Gpu& gpu);
std::optional<Contradiction> contradiction(const Link& link);
std::optional<Contradiction> contradiction(const Host& host);

}  // namespace kvcast::config
