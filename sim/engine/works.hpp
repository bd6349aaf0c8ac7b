// The works of a run in the form that the engine computes with.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/engine.hpp"
#include "engine/fluid.hpp"

namespace kvcast::engine {

// Demands become the time that an op works alone, the largest demand / rate, and the shares of resources that it then
// uses. Works are taken in once, however many ops have them.
class WorkTable {
 public:
  explicit WorkTable(const System& system) : system_(system) {}

  // Takes in the next work. Aborts on numbers and resources that no work may have.
  void add(double latency, std::span<const Demand> demands);
  std::size_t size() const { return rows_.size(); }

  double latency(WorkId id) const { return rows_[id].latency; }  // picoseconds
  double alone(WorkId id) const { return rows_[id].alone; }      // picoseconds; 0: no demand
  // Shares of fair resources.
  std::span<const Share> shares(WorkId id) const {
    return {shares_.data() + rows_[id].first_share, rows_[id].share_count};
  }
  std::span<const std::uint16_t> fifos(WorkId id) const {
    return {fifos_.data() + rows_[id].first_fifo, rows_[id].fifo_count};
  }

 private:
  struct Row {
    double latency, alone;
    std::uint32_t first_share, first_fifo;
    std::uint32_t share_count, fifo_count;
  };

  const System& system_;
  std::vector<Row> rows_;
  std::vector<Share> shares_;
  std::vector<std::uint16_t> fifos_;
};

}  // namespace kvcast::engine
