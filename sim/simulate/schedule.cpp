#include "simulate/schedule.hpp"

#include <algorithm>
#include <bit>

#include "base/error.hpp"

namespace kvcast::simulate {
namespace {

constexpr double kNever = -1e300;
// Equal times differ by at most this once the engine has rounded them to whole picoseconds.
constexpr double kSameTime = 2;
// Limits up to which a different order of a fifo's holders changes little: copies of two streams that alternate
// slightly earlier or later change no step by more than 2 %. Above these shares (of the schedule's length; of all
// overtaking) some steps changed by 10 % and more, over all policies on three machines.
constexpr double kMostOvertaken = 0.06, kMostIdle = 0.5;

// Plain loop over a fixed number of shifts, which compilers vectorise.
void raise(ByShift& into, const ByShift& other) {
  for (std::size_t i = 0; i < kShifts; ++i) into[i] = into[i] < other[i] ? other[i] : into[i];
}

}  // namespace

Schedule::Schedule(const Recorder& recorder, const TimedSource& source) : recorder_(recorder), source_(source) {
  last_on_lane_.fill(kNone), last_holder_.fill(kNone), last_ready_.fill(kNever);
  const std::vector<engine::Record>& records = recorder.records();
  KVCAST_CHECK(recorder.detailed_from() < source.blocks().size());
  first_id_ = source.blocks()[recorder.detailed_from()].first;
  record_of_.assign(static_cast<std::size_t>(source.blocks().back().last - first_id_) + 1, kNone);
  nodes_.reserve(records.size()), waits_.reserve(4 * records.size());
  for (std::size_t i = 0; i < records.size(); ++i) {
    record_of_[static_cast<std::size_t>(records[i].id - first_id_)] = static_cast<std::uint32_t>(i);
    add(i);
  }
}

double Schedule::finish_of(std::uint32_t record) const {
  return static_cast<double>(recorder_.records()[record].finish);
}

std::size_t Schedule::block_end(std::size_t block) const {
  return record_of_[static_cast<std::size_t>(source_.blocks()[block].last - first_id_)];
}

// Appends the ops that the start of this one waits for. `known`: latest finish of those recorded; `missing`: some were
// not.
void Schedule::add_waits(std::size_t record, double& known, bool& missing) {
  const engine::Record& r = recorder_.records()[record];
  const auto wait = [&](std::uint32_t earlier) {
    if (earlier == kNone) {
      missing = true;
      return;
    }
    waits_.push_back(earlier);
    known = std::max(known, finish_of(earlier));
  };
  const auto wait_for_id = [&](engine::OpId id) {
    wait(id < first_id_ ? kNone : record_of_[static_cast<std::size_t>(id - first_id_)]);
  };
  const auto [op, is_issue] = OpTag::unpack(r.tag);
  const bool split = source_.costs()[source_.stream().ops[op].work].issued;
  const engine::OpId first_call = source_.engine_id(op) - 1;  // of a split copy
  if (split && r.id != first_call) {
    wait_for_id(first_call);
  } else {
    for (const std::uint32_t earlier : source_.stream().after_of(source_.stream().ops[op])) {
      wait_for_id(source_.engine_id(earlier));
    }
  }
  wait(std::exchange(last_on_lane_[r.lane], static_cast<std::uint32_t>(record)));
}

void Schedule::add(std::size_t record) {
  const engine::Record& r = recorder_.records()[record];
  const auto [op, is_issue] = OpTag::unpack(r.tag);
  const CostTable::Entry& cost = source_.costs()[source_.stream().ops[op].work];
  const auto start = static_cast<double>(r.start), work_start = static_cast<double>(r.work_start);
  Node node;
  node.work = source_.stream().ops[op].work, node.is_issue = is_issue;
  double known = kNever;
  bool missing = false;
  add_waits(record, known, missing);
  const bool explained = start - known <= kSameTime;
  node.earliest_start = explained || !missing ? kNever : start;
  if (known == kNever) node.earliest_start = start;
  node.start_slack = start - std::max(known, node.earliest_start);
  node.waits_end = static_cast<std::uint32_t>(waits_.size());

  unsigned fifos = is_issue ? 1u << static_cast<unsigned>(cost.issue.thread) : cost.fifos;
  node.latency = fifos == 0 ? work_start - start : is_issue ? 0 : cost.latency;
  node.duration = static_cast<double>(r.finish) - work_start;
  double ready = start + node.latency;
  for (const double since = ready; fifos != 0; fifos &= fifos - 1) {
    const auto fifo = static_cast<std::size_t>(std::countr_zero(fifos));
    std::uint32_t& last = last_holder_[fifo];
    if (last != kNone) {
      waits_.push_back(last);
      ready = std::max(ready, finish_of(last));
    }
    last = static_cast<std::uint32_t>(record);
    // An op that waited for another fifo may have been overtaken.
    if (since < last_ready_[fifo]) continue;
    node.fifos = static_cast<std::uint16_t>(node.fifos | 1u << fifo);
    last_ready_[fifo] = since;
  }
  node.holders_end = static_cast<std::uint32_t>(waits_.size());
  // A holder from before the start of the record is a bound on the work by itself.
  node.earliest_work = work_start - ready > kSameTime ? work_start : kNever;
  node.work_slack = work_start - std::max(ready, node.earliest_work);
  nodes_.push_back(node);
}

std::vector<Schedule::UsedWork> Schedule::used_works(std::size_t first_block) const {
  std::vector<UsedWork> used;
  std::vector<std::uint32_t> slot(source_.costs().works().size(), kNone);
  const engine::OpId counted_from = source_.blocks()[first_block].first;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const lower::WorkId id = nodes_[i].work;
    if (slot[id] == kNone) {
      const lower::Works::Entry& work = source_.costs().works()[id];
      slot[id] = static_cast<std::uint32_t>(used.size());
      used.push_back({id, 0, source_.costs().model().terms(work.work, work.lane)});
    }
    if (!nodes_[i].is_issue && recorder_.records()[i].id >= counted_from) ++used[slot[id]].ops;
  }
  return used;
}

std::vector<Schedule::Move> Schedule::moves_of(std::span<const UsedWork> used, std::span<const hardware::Shift> shifts,
                                               std::vector<std::uint32_t>& move_of_work) const {
  std::vector<Move> moves(1);  // for works that no shift changes
  moves[0].work.fill(1), moves[0].calls.fill(1);
  move_of_work.assign(source_.costs().works().size(), 0);
  for (const UsedWork& work : used) {
    const hardware::Terms::Times as_is = work.terms.times();
    for (std::size_t i = 0; i < shifts.size(); ++i) {
      const auto rests = [&](const hardware::Term& t) {
        return t.seconds.source != nullptr && t.seconds.uncertainty > 0 && *t.seconds.source == shifts[i].source;
      };
      if (std::none_of(work.terms.parts().begin(), work.terms.parts().end(), rests)) continue;
      const hardware::Terms::Times shifted = work.terms.times(&shifts[i].source, shifts[i].sign);
      if (move_of_work[work.id] == 0) {
        move_of_work[work.id] = static_cast<std::uint32_t>(moves.size());
        moves.push_back(moves[0]);
      }
      Move& move = moves[move_of_work[work.id]];
      move.latency[i] = static_cast<double>(to_picos(shifted.waits) - to_picos(as_is.waits));
      if (as_is.work > 0) move.work[i] = shifted.work / as_is.work;
      if (as_is.issue_first > 0) move.calls[i] = shifted.issue_first / as_is.issue_first;
    }
  }
  return moves;
}

Schedule::FifoOrder::FifoOrder() {
  for (auto* times : {&ready, &free, &free_before}) {
    for (ByShift& time : *times) time.fill(kNever);
  }
}

void Schedule::FifoOrder::take(unsigned fifos, const ByShift& now_ready, const ByShift& finish) {
  for (; fifos != 0; fifos &= fifos - 1) {
    const auto f = static_cast<std::size_t>(std::countr_zero(fifos));
    for (std::size_t i = 0; i < kShifts; ++i) {
      overtaken[i] += std::max(0.0, ready[f][i] - now_ready[i] - kSameTime);
      idle[i] += std::max(0.0, ready[f][i] - std::max(now_ready[i], free_before[f][i]) - kSameTime);
    }
    ready[f] = now_ready, free_before[f] = free[f], free[f] = finish;
  }
}

Schedule::Times Schedule::shifted(std::span<const UsedWork> used, std::span<const hardware::Shift> shifts) const {
  KVCAST_CHECK(shifts.size() <= kShifts);
  std::vector<std::uint32_t> move_of_work;
  const std::vector<Move> moves = moves_of(used, shifts, move_of_work);
  Times times;
  times.starts.resize(nodes_.size()), times.finishes.resize(nodes_.size());
  FifoOrder order;
  std::uint32_t wait = 0;
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    const Node& node = nodes_[n];
    const Move& move = moves[move_of_work[node.work]];
    const ByShift& factor = node.is_issue ? move.calls : move.work;
    ByShift start, work_start;
    start.fill(kNever);
    for (; wait < node.waits_end; ++wait) raise(start, times.finishes[waits_[wait]]);
    for (std::size_t i = 0; i < kShifts; ++i) {
      start[i] = std::max(start[i], node.earliest_start) + node.start_slack;
      const double latency = node.latency + (node.is_issue ? 0 : move.latency[i]);
      work_start[i] = std::max(start[i] + latency, node.earliest_work);
    }
    const ByShift ready = work_start;
    for (; wait < node.holders_end; ++wait) raise(work_start, times.finishes[waits_[wait]]);
    times.starts[n] = start;
    for (std::size_t i = 0; i < kShifts; ++i) {
      times.finishes[n][i] = work_start[i] + node.work_slack + node.duration * factor[i];
    }
    order.take(node.fifos, ready, times.finishes[n]);
  }
  if (nodes_.empty()) return times;
  const double length =
      finish_of(static_cast<std::uint32_t>(nodes_.size() - 1)) - static_cast<double>(recorder_.records().front().start);
  for (std::size_t i = 0; i < kShifts; ++i) {
    times.reordered[i] = order.overtaken[i] > kMostOvertaken * length ||
                         (order.idle[i] > kSameTime && order.idle[i] > kMostIdle * order.overtaken[i]);
  }
  return times;
}

}  // namespace kvcast::simulate
