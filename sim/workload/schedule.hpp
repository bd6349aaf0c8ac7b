// A recorded schedule that can be timed again under shifted costs, without the engine.
//
// Every op starts when the last of the ops that it waited for has finished: those that it names, the one before it on
// its lane, and, for its work, the ones that held its fifo resources before it. These are taken from the record, so
// that one pass over the ops (longest paths, in the max-plus sense) gives all times under other costs, several sets of
// costs at once. Hidden work that becomes longer comes to light, and a host that falls behind becomes the bottleneck.
// Two things stay as recorded: how much sharing with others stretched an op's work, and the order in which ops took a
// fifo. A pass tells for which shifts this order would be another one: there only the engine knows the times.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "hardware/terms.hpp"
#include "workload/timed.hpp"

namespace kvcast::workload {

// Sets of shifted costs that a pass times together: two vector registers of doubles.
inline constexpr std::size_t kShifts = 8;
using ByShift = std::array<double, kShifts>;

// The ops of the blocks that a recorder kept in full, which must outlive the schedule.
class Schedule {
 public:
  Schedule(const Recorder& recorder, const TimedSource& source);

  // Parts of the cost of each distinct work of the schedule, and how many ops from block `first_block` on have it.
  struct UsedWork {
    lower::WorkId id = 0;
    int ops = 0;
    hardware::Terms terms;
  };
  std::vector<UsedWork> used_works(std::size_t first_block) const;

  // Starts and finishes in picoseconds of all records, in their order.
  struct Times {
    std::vector<ByShift> starts, finishes;
    // By shift, whether ops would take a fifo in an order so different that the recorded one does not stand for it.
    std::array<bool, kShifts> reordered{};
  };
  // At most kShifts shifts; where there are fewer, or where a shift has no source, times are as recorded.
  Times shifted(std::span<const UsedWork> used, std::span<const hardware::Shift> shifts) const;
  // Finish of a block's last op.
  const ByShift& end_of(std::size_t block, const Times& times) const { return times.finishes[block_end(block)]; }

 private:
  struct Node {
    double earliest_start = 0, earliest_work = 0;  // bounds by ops that were not recorded
    double start_slack = 0, work_slack = 0;        // rounding: at most a picosecond or two
    double latency = 0, duration = 0;
    std::uint32_t waits_end = 0;    // in waits_: behind the ops that the start waits for
    std::uint32_t holders_end = 0;  // and behind the holders that the work waits for
    lower::WorkId work = 0;
    std::uint16_t fifos = 0;  // bit set of the resources whose order of holders is that of being ready
    bool is_issue = false;
  };
  // Order of the holders of fifos under shifts.
  struct FifoOrder {
    std::array<ByShift, hardware::kResourceCount> ready, free;  // of the last holder: when it was ready, when it ended
    std::array<ByShift, hardware::kResourceCount> free_before;  // when the one before it ended
    ByShift overtaken{};  // sum of the times by which ops were ready before an earlier holder
    ByShift idle{};       // sum of those in which their fifo was free meanwhile
    FifoOrder();
    void take(unsigned fifos, const ByShift& ready, const ByShift& finish);
  };
  // How a work's costs move, by shift.
  struct Move {
    ByShift latency{};        // picoseconds more
    ByShift work{}, calls{};  // factors on the time at work, and on that of the calls that issue a copy
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
  std::vector<Node> nodes_;                                    // as the records
  std::vector<std::uint32_t> waits_;
};

}  // namespace kvcast::workload
