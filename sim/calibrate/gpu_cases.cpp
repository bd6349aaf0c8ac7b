// Maps rows of kvcast-kernels to ops. Cold rows only: a step reads everything once.

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "calibrate/fit_stages.hpp"
#include "calibrate/machine.hpp"

namespace kvcast::calibrate {
namespace {

using graph::Copy;
using graph::CopyKind;
using graph::Direction;
using graph::KernelClass;

constexpr double kHalf = 2;  // bytes of an fp16 number
constexpr std::size_t kLeastToHoldOut = 16;
constexpr double kLargeCopy = 1 << 20;  // bytes from which a copy shows the link's bandwidth
constexpr double kInCommands = 1024;    // a copy of fewer bytes may need no copy engine
// Bytes from which a gather shows its share of the bandwidth: for fewer bytes the time is mostly latency, and a curve
// with a node based on such cases alone would apply it to all gathers, attention over tokens among them.
constexpr double kLargeGather = 16e6;
constexpr double kFullGrid = 128;  // blocks of a zero-copy kernel that fill the link

graph::Kernel stream_of(const MeasuredRow& row) {
  const double bytes = row.of_work("bytes");
  const std::string& op = row.word("op");
  if (op == "read") return {KernelClass::kElementwise, bytes, 0, 0, 0};
  if (op == "write") return {KernelClass::kElementwise, 0, bytes, 0, 0};
  return {KernelClass::kElementwise, bytes / 2, bytes / 2, 0, 0};
}

graph::DecodeAttention attention_of(const MeasuredRow& row) {
  const double context = row.number("context");
  graph::DecodeAttention work;
  work.rows = row.number("batch") * row.number("kv_heads"), work.group = row.number("group");
  work.head_dim = row.number("dim"), work.tokens = work.rows * context, work.longest = context;
  work.unit_bytes = row.number("page") * work.head_dim * kHalf;
  return work;
}

bool is(const MeasuredRow& row, const char* axis, const char* value) { return row.word(axis) == value; }

// The op of a kernel's row; Marker for rows of other kinds.
graph::Work kernel_of(const MeasuredRow& row) {
  const auto bytes = [&] { return row.of_work("bytes"); };
  if (row.bench == "hbm_stream") return stream_of(row);
  if (row.bench == "hbm_gather") {
    if (bytes() < kLargeGather) return graph::Marker{};
    return graph::Kernel{.cls = KernelClass::kGather,
                         .read_bytes = bytes() / 2,
                         .write_bytes = bytes() / 2,
                         .unit_bytes = row.number("row_bytes") * row.number("run")};
  }
  if (row.bench == "convert")
    return graph::Kernel{.cls = KernelClass::kConvert, .read_bytes = bytes() / 2, .write_bytes = bytes() / 2};
  // Rows with a softmax are of two kernels, and validated.
  if (row.bench == "page_score" && is(row, "reduce", "group_max"))
    return graph::Kernel{.cls = KernelClass::kScore, .read_bytes = bytes(), .flops = row.of_work("flops")};
  if (row.bench == "topk") return graph::TopK{row.number("rows"), row.number("n"), row.number("k"), 4};
  if (row.bench == "prefill_attention") return graph::PrefillAttention{row.of_work("flops"), bytes(), 0};
  if (row.bench == "decode_attention") return attention_of(row);
  if (row.bench == "gemm") return graph::Gemm{row.number("m"), row.number("n"), row.number("k"), kHalf};
  return graph::Marker{};
}

void add_chain(const MeasuredRow& row, std::vector<MeasuredOp>& cases) {
  MeasuredOp one = measured(row);
  const bool graph = is(row, "how", "graph");
  one.count = row.number("kernels");
  if (is(row, "clock", "device") && one.count > 1) {
    one.bench = graph ? "kernels in a graph" : "kernels in a stream";
    one.measure = graph ? Measure::kGraphGap : Measure::kStreamGap;
  } else if (is(row, "clock", "issue")) {
    one.bench = graph ? "graph launches" : "launches";
    one.op.lane = graph::Lane::kHost, one.op.kind = graph::Kind::kLaunch;
    one.op.work = graph::HostWork{graph ? graph::HostCall::kGraphLaunch : graph::HostCall::kLaunch, one.count};
  } else {
    return;
  }
  cases.push_back(std::move(one));
}

void add_sync(const MeasuredRow& row, std::vector<MeasuredOp>& cases) {
  const bool idle = is(row, "what", "stream_sync_idle");
  if (!idle && !is(row, "what", "value_round_trip")) return;
  MeasuredOp one = measured(row);
  one.bench = idle ? "stream waits" : "values read back";
  one.op.lane = graph::Lane::kHost, one.op.kind = graph::Kind::kSync;
  one.op.work = graph::HostWork{idle ? graph::HostCall::kStreamSync : graph::HostCall::kItemSync, 1};
  cases.push_back(std::move(one));
}

// The number that a copy's row measures, empty if the model has no such number.
std::string copy_bench(const MeasuredRow& row, double bytes, bool both) {
  const bool device = is(row, "clock", "device"), issue = is(row, "clock", "issue");
  if (is(row, "memory", "pageable")) {
    const bool read = is(row, "direction", "h2d") && is(row, "how", "calls") && is(row, "clock", "host");
    return read && bytes >= kLargeCopy ? "pageable copies" : "";
  }
  if (both) return device && is(row, "how", "calls") && bytes >= kLargeCopy ? "copies both ways" : "";
  if (is(row, "how", "calls")) {
    if (issue) return "copy calls";
    // The driver writes a few bytes for the device into its commands: a single such copy has no latency.
    const bool written = bytes < kInCommands && row.number("pieces") == 1 && is(row, "direction", "h2d");
    if (device && !written) return bytes >= kLargeCopy ? "large copies" : "small copies";
  }
  // The CPU copies small pieces for the device into the call. Pieces for the host cost half as much, and no step waits
  // for them.
  if (is(row, "how", "batched") && issue && is(row, "direction", "h2d")) return "batched calls";
  if (is(row, "how", "2d") && device) return "2D copies";
  if (is(row, "how", "2d") && issue) return "2D calls";
  return "";
}

void add_host_copy(const MeasuredRow& row, std::vector<MeasuredOp>& cases) {
  const double bytes = row.number("bytes"), pieces = row.number("pieces");
  const bool both = is(row, "direction", "both");
  MeasuredOp one = measured(row);
  one.bench = copy_bench(row, bytes, both);
  if (one.bench.empty()) return;
  Copy copy;
  copy.direction = is(row, "direction", "d2h") ? Direction::kDeviceToHost : Direction::kHostToDevice;
  copy.runs = pieces, copy.run_bytes = bytes;
  if (is(row, "memory", "pageable")) copy.kind = CopyKind::kPageable;
  if (is(row, "how", "batched")) copy.kind = CopyKind::kBatched;
  if (is(row, "how", "2d")) {
    copy.kind = CopyKind::kMemcpy2D;
    copy.runs = 1, copy.run_bytes = bytes * pieces, copy.rows = pieces;
  }
  if (is(row, "clock", "device")) one.measure = Measure::kEngine;
  if (is(row, "clock", "issue")) one.measure = Measure::kIssue;
  if (both) one.measure = Measure::kBothWays, one.count = 2 * bytes * pieces;
  one.op.lane = graph::Lane::kCopyA, one.op.kind = graph::Kind::kCopyIn, one.op.work = copy;
  cases.push_back(std::move(one));
}

void add_zero_copy(const MeasuredRow& row, std::vector<MeasuredOp>& cases) {
  if (row.number("blocks") < kFullGrid) return;
  Copy copy;
  copy.kind = CopyKind::kZeroCopy;
  copy.run_bytes = row.number("piece"), copy.runs = row.number("bytes") / copy.run_bytes;
  MeasuredOp one = measured(row);
  one.op.lane = graph::Lane::kCopyA, one.op.kind = graph::Kind::kCopyIn, one.op.work = copy;
  cases.push_back(std::move(one));
}

// Overhead between two events in addition to the kernels between them: the time of one kernel that does nothing, less
// the increment of each of a chain of them. It is part of the time of every kernel that was measured by itself, and of
// no kernel of a step.
double between_events(const Results& results, const char* how) {
  const MeasuredRow* one = nullptr;
  const MeasuredRow* many = nullptr;
  for (const MeasuredRow& row : results.rows) {
    if (row.bench != "launch_chain" || !is(row, "how", how) || !is(row, "clock", "device")) continue;
    if (row.number("kernels") == 1) one = &row;
    if (!many || row.number("kernels") > many->number("kernels")) many = &row;
  }
  if (!one || one == many) return 0;
  const double more = many->number("kernels") - 1;
  return std::max(0.0, one->seconds - (many->seconds - one->seconds) / more);
}

// Subtracts that overhead from kernels between events, identified by their work; copies have a latency of their own.
void take_off_events(const Results& results, std::vector<MeasuredOp>& cases) {
  const double stream = between_events(results, "stream"), graph = between_events(results, "graph");
  for (MeasuredOp& one : cases) {
    const bool kernel = one.measure == Measure::kAlone && one.op.lane != graph::Lane::kHost;
    const double surplus = one.measure == Measure::kGraphGap              ? graph
                           : kernel || one.measure == Measure::kStreamGap ? stream
                                                                          : 0;
    one.seconds = std::max(0.1 * one.seconds, one.seconds - surplus);
  }
}

// The faster one where a case was measured with kvcast's own kernel and with libraries'.
std::vector<MeasuredRow> fastest(const std::vector<MeasuredRow>& rows) {
  std::map<std::string, std::size_t> indices;
  std::vector<MeasuredRow> out;
  for (const MeasuredRow& row : rows) {
    MeasuredRow plain = row;
    plain.words.erase("by");
    const auto [at, is_new] = indices.try_emplace(plain.id(), out.size());
    if (is_new) {
      out.push_back(row);
    } else if (row.seconds < out[at->second].seconds) {
      out[at->second] = row;
    }
  }
  return out;
}

}  // namespace

double time_between_events(const Results& results) { return between_events(results, "stream"); }

std::vector<MeasuredOp> gpu_cases(const Results& results) {
  std::vector<MeasuredOp> cases;
  for (const MeasuredRow& row : fastest(results.rows)) {
    if (row.bench == "host_sync") add_sync(row, cases);  // has no cold mode
    if (row.mode != "cold") continue;
    if (row.bench == "launch_chain") add_chain(row, cases);
    if (row.bench == "host_copy") add_host_copy(row, cases);
    if (row.bench == "zero_copy_gather") add_zero_copy(row, cases);
    graph::Work work = kernel_of(row);
    if (std::holds_alternative<graph::Marker>(work)) continue;
    MeasuredOp one = measured(row);
    one.op.kind = row.bench == "gemm" ? graph::Kind::kGemm : graph::Kind::kAttention;
    one.op.work = std::move(work);
    cases.push_back(std::move(one));
  }
  take_off_events(results, cases);
  hold_out(cases, kLeastToHoldOut);
  return cases;
}

}  // namespace kvcast::calibrate
