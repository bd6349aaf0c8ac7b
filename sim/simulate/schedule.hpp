// A recorded schedule that can be timed again under shifted costs, without the engine.
//
// Every op starts when the last of the ops that it waits for has finished: its predecessors, the op before it on its
// lane, and, for its work, the previous holders of its fifo resources. These are taken from the record, so that one
// pass over the ops (longest paths, in the max-plus sense) gives all times under several sets of costs at once. Hidden
// work that becomes longer is exposed, and a host that falls behind becomes the bottleneck. Two things stay as
// recorded: the slowdown of an op's work by sharing with others, and the order in which ops took a fifo. A pass reports
// the shifts under which this order would differ; for those the engine must run again.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "hardware/terms.hpp"
#include "simulate/timed.hpp"

namespace kvcast::simulate {

// Sets of shifted costs that a pass times together; they fill two vector registers of doubles.
inline constexpr std::size_t kShifts = 8;
using ByShift = std::array<double, kShifts>;

// Schedule of the ops in the blocks that a recorder kept in full. The recorder and the source must outlive it.
class Schedule {
 public:
  Schedule(const Recorder& recorder, const TimedSource& source);

  // Cost terms of a distinct work of the schedule, and the number of ops from block `first_block` on that have it.
  struct UsedWork {
    lower::WorkId id = 0;
    int ops = 0;
    hardware::Terms terms;
  };
  std::vector<UsedWork> used_works(std::size_t first_block) const;

  // Starts and finishes of all records, in their order; picoseconds.
  struct Times {
    std::vector<ByShift> starts, finishes;
    // True for shifts under which ops would take a fifo in an order too different from the recorded one.
    std::array<bool, kShifts> reordered{};
  };
  // Takes at most kShifts shifts. Times of unused shifts, and of shifts without a source, are as recorded.
  Times shifted(std::span<const UsedWork> used, std::span<const hardware::Shift> shifts) const;
  // Finish of a block's last op.
  const ByShift& end_of(std::size_t block, const Times& times) const { return times.finishes[block_end(block)]; }

 private:
  struct Node {
    double earliest_start = 0, earliest_work = 0;  // lower bounds by ops that were not recorded
    double start_slack = 0, work_slack = 0;        // rounding: at most a picosecond or two
    double latency = 0, duration = 0;
    std::uint32_t waits_end = 0;    // end in waits_ of the ops that the start waits for
    std::uint32_t holders_end = 0;  // and of the holders that the work waits for
    lower::WorkId work = 0;
    std::uint16_t fifos = 0;  // bit set of the fifos that ops took in the order in which they were ready
    bool is_issue = false;
  };
  // Order of the holders of fifos under shifts.
  struct FifoOrder {
    std::array<ByShift, hardware::kResourceCount> ready, free;  // of the last holder: when it was ready, when it ended
    std::array<ByShift, hardware::kResourceCount> free_before;  // when the one before it ended
    ByShift overtaken{};  // sum of the times by which ops were ready before an earlier holder
    ByShift idle{};       // part of that sum in which the fifo was free
    FifoOrder();
    void take(unsigned fifos, const ByShift& ready, const ByShift& finish);
  };
  // Change of a work's costs, by shift.
  struct Move {
    ByShift latency{};        // added picoseconds
    ByShift work{}, calls{};  // factors on the time of the work, and of the calls that issue a copy
  };
  std::vector<Move> moves_of(std::span<const UsedWork> used, std::span<const hardware::Shift> shifts,
                             std::vector<std::uint32_t>& move_of_work) const;
  void add(std::size_t record);
  void add_waits(std::size_t record, double& known, bool& missing);
  std::size_t block_end(std::size_t block) const;
  double finish_of(std::uint32_t record) const;

  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;

  const Recorder& recorder_;
  const TimedSource& source_;
  engine::OpId first_id_ = 0;
  std::vector<std::uint32_t> record_of_;  // by engine id from first_id_ on
  std::array<std::uint32_t, graph::kLaneCount> last_on_lane_{};
  std::array<std::uint32_t, hardware::kResourceCount> last_holder_{};
  std::array<double, hardware::kResourceCount> last_ready_{};  // of last_holder_
  std::vector<Node> nodes_;                                    // in the order of the records
  std::vector<std::uint32_t> waits_;
};

}  // namespace kvcast::simulate
