// A stream of work as flat arrays: lowered once and timed on any number of machines.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/source.hpp"
#include "graph/traffic.hpp"

namespace kvcast::lower {

using WorkId = std::uint32_t;

// The distinct works of a model's ops. Ops of equal work on one lane cost the same on every machine, so that a machine
// prices each entry once.
class Works {
 public:
  struct Entry {
    graph::Work work;
    graph::Lane lane = graph::Lane::kCompute;
    graph::ByteCounts traffic;
    bool operator==(const Entry&) const = default;
  };

  // Returns the id of the entry that equals this work; appends one if there is none.
  WorkId add(const graph::Work& work, graph::Lane lane);
  const Entry& operator[](WorkId id) const { return entries_[id]; }
  std::size_t size() const { return entries_.size(); }
  bool operator==(const Works&) const = default;

 private:
  static constexpr WorkId kEmpty = 0xFFFFFFFFu;
  void grow();

  std::vector<Entry> entries_;
  std::vector<std::uint64_t> hashes_;  // hashes of the entries
  std::vector<WorkId> slots_;          // open addressing; the size is a power of two, at most half of it used
};

struct FlatOp {
  const char* label = "";  // static text
  WorkId work = 0;
  std::uint32_t after_begin = 0, after_end = 0;    // range of FlatStream::after
  std::uint32_t memory_begin = 0, memory_end = 0;  // range of FlatStream::memory
  std::int16_t layer = -1;                         // -1: belongs to no layer
  graph::Kind kind = graph::Kind::kMarker;
  graph::Lane lane = graph::Lane::kCompute;
  bool operator==(const FlatOp&) const = default;
};

// Ops are numbered from 0 over all blocks; each waits for earlier ones only.
struct FlatStream {
  struct Block {
    std::uint32_t end = 0;  // one past the block's last op, which is the next block's gate
    graph::ByteCounts traffic;
    bool operator==(const Block&) const = default;
  };
  std::vector<FlatOp> ops;
  std::vector<std::uint32_t> after;
  std::vector<graph::MemoryDelta> memory;
  std::vector<Block> blocks;

  std::span<const std::uint32_t> after_of(const FlatOp& op) const {
    return std::span(after).subspan(op.after_begin, op.after_end - op.after_begin);
  }
  std::span<const graph::MemoryDelta> memory_of(const FlatOp& op) const {
    return std::span(memory).subspan(op.memory_begin, op.memory_end - op.memory_begin);
  }
  bool operator==(const FlatStream&) const = default;
  std::uint32_t begin_of(std::size_t block) const { return block == 0 ? 0 : blocks[block - 1].end; }
};

// Flattens all blocks of the source; adds their works to `works`.
FlatStream flatten(graph::WorkSource& source, Works& works);

}  // namespace kvcast::lower
