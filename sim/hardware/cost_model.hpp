// Turns work into time: the only module that knows both.
//
// Kernels take gap + floor + max over their demands; a demand is bytes or FLOP over the rate that such a kernel reaches
// alone. Every number comes from the machine's profile; each .cpp of this module states its formulas and their sources.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "config/framework.hpp"
#include "config/hardware.hpp"
#include "graph/op.hpp"
#include "hardware/cost.hpp"
#include "hardware/terms.hpp"

namespace kvcast::hardware {

// Sources of Shift for memory capacity: sign 1 is less memory, -1 more.
inline constexpr const char* kDeviceMemory = "device memory";
inline constexpr const char* kHostMemory = "host memory";

class CostModel {
 public:
  // Keeps copies; the framework says whether kernels follow each other in CUDA graphs or in streams. `gpus`: GPUs that
  // do the same work on one host and share its memory and its cores evenly.
  CostModel(const config::Hardware& hardware, const config::Framework& framework, Shift shift = {}, int gpus = 1);

  // The same machine under a shift.
  CostModel shifted(const Shift& shift) const {
    CostModel other = *this;
    other.shift_ = shift;
    return other;
  }

  // The time and demands of work on a lane: kernels of copy streams are never in a CUDA graph, and host calls occupy
  // their lane's thread.
  Cost cost(const graph::Work& work, graph::Lane lane) const;
  Cost cost(const graph::Op& op) const { return cost(op.work, op.lane); }
  // The parts that make up the cost. Their sources live as long as the model and its copies.
  Terms terms(const graph::Work& work, graph::Lane lane) const;

  // The parts of the cost as text of several lines, longest part first: each term with its time, origin and source, and
  // the bottleneck.
  std::string explain(const graph::Op& op) const;

  // Units of the resource served per second.
  double rate(Resource resource) const { return rates_[static_cast<std::size_t>(resource)]; }
  // Bytes that fit: device memory without the reserved part, or host memory that may be pinned. A shift changes it by
  // the uncertainties of its parts, which are independent.
  double capacity(graph::Pool pool) const;
  // Half-width of the capacity's interval, bytes, and its origin.
  double capacity_spread(graph::Pool pool) const;
  Origin capacity_origin(graph::Pool pool) const;
  const config::Hardware& hardware() const { return *hardware_; }
  const config::Framework& framework() const { return *framework_; }

 private:
  std::shared_ptr<const config::Hardware> hardware_;    // shared by copies, because terms point into it ...
  std::shared_ptr<const config::Framework> framework_;  // ... and into this
  Shift shift_;
  std::array<double, kResourceCount> rates_{};
};

}  // namespace kvcast::hardware
