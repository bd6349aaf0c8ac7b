// Host-device copies by count, size and kind.
//
// A host thread issues one call per run (or one for all), and the copy engine of the direction serves the runs one
// after the other: issue and engine form a pipeline, so n runs take about max(n · issue, n · engine). Copies of one
// stream are ordered: the engine starts a run when the one before is through, so that its start is not hidden behind
// the wire. On an H200 that start takes 2.4 us (1.9 us to the host) whatever the bytes, and a call 1.3 us (kvcast's
// measuring program), so that the engine and not the thread limits short copies. Copies of two streams that are queued
// at the same time are served in turn, and each takes longer. The driver never merges neighbours (vLLM PR 48434), so
// the time depends on the length of a run, not on the number of pages. Pieces of a batched call and rows of a 2D copy
// have no order: their starts are hidden behind the wire.
//
// A kernel that reads pinned host memory needs no issue per run. Its rate is bytes in flight over the round trip, which
// falls with the contiguous length; it leaves the copy engine free.
//
// Pageable memory is staged by the issuing thread through a pinned buffer of the driver: the source is read, the buffer
// is written, and the engine reads it again.

#include "base/error.hpp"
#include "hardware/work.hpp"

namespace kvcast::hardware {
namespace {

using graph::Copy;
using graph::CopyKind;

struct Path {
  Resource engine, wire;
  Number bandwidth;
};

Path path_of(const config::Link& link, graph::Direction direction) {
  if (direction == graph::Direction::kHostToDevice) {
    return {Resource::kH2d, Resource::kLinkIn, number(link.h2d_bandwidth)};
  }
  return {Resource::kD2h, Resource::kLinkOut, number(link.d2h_bandwidth)};
}

// Sum and maximum of times; the longer one determines origin and uncertainty.
Number sum(const Number& a, const Number& b) {
  Number longer = a.value >= b.value ? a : b;
  longer.value = a.value + b.value;
  return longer;
}
Number longer_of(const Number& a, const Number& b) { return a.value >= b.value ? a : b; }

// Host time of the call for one run.
Number issue_of_run(const config::Link& link, const Copy& work) {
  const Number call = at(link.issue_call, work.run_bytes);
  switch (work.kind) {
    case CopyKind::kMemcpyAsync:
      return call;
    case CopyKind::kMemcpy2D:
      // A single row is a plain copy.
      return sum(sum(call, number(link.issue_2d) * (work.rows > 1 ? 1 : 0)), number(link.issue_row) * work.rows);
    case CopyKind::kBatched:
      return sum(at(link.issue_batched, work.run_bytes), call * (1 / work.runs));  // one call serves all
    case CopyKind::kPageable:
      return sum(call, exact(work.run_bytes) / number(link.pageable_bandwidth));
    case CopyKind::kZeroCopy:
      break;
  }
  KVCAST_CHECK(!"a kernel's copy has no call");
  return {};
}

// Time of the copy engine for one run: to start it, for the turn between streams, and for its bytes or rows.
struct EngineTime {
  Number start, turn, bytes;
  double seconds() const { return start.value + turn.value + bytes.value; }
};

EngineTime engine_of_run(const config::Link& link, const Copy& work, const Number& bandwidth) {
  EngineTime engine{exact(0), exact(0), exact(work.run_bytes) / bandwidth};
  if (work.kind == CopyKind::kBatched) {
    engine.bytes = longer_of(number(link.engine_batched), engine.bytes);
    return engine;
  }
  engine.start = at(link.engine_piece, work.run_bytes);
  if (work.direction == graph::Direction::kDeviceToHost) engine.start.value *= link.engine_d2h_ratio;
  if (work.in_turn) engine.turn = number(link.engine_turn);
  if (work.kind == CopyKind::kMemcpy2D) engine.bytes = longer_of(number(link.engine_row) * work.rows, engine.bytes);
  return engine;
}

void add_shared(Terms& terms, const config::Hardware& machine, const Copy& work, const Path& path) {
  const double bytes = work.runs * work.run_bytes;
  const double dram = work.kind == CopyKind::kPageable ? 3 * bytes : bytes;
  terms.work("wire", path.wire, exact(bytes) / path.bandwidth);
  terms.work("wire, both ways", Resource::kLink, exact(bytes) / number(machine.link.both_bandwidth));
  terms.work("host memory", Resource::kDram, exact(dram) / number(machine.host.dram_bandwidth));
  terms.work("device memory", Resource::kHbm, exact(bytes) / number(machine.gpu.hbm_bandwidth));
}

void add_zero_copy(Terms& terms, const config::Hardware& machine, const Copy& work, const Path& path) {
  terms.wait("kernel floor", at_clock(machine.gpu, number(machine.gpu.floor_small)));
  terms.wait("round trip of the first load", number(machine.link.load_latency));
  const Number rate = path.bandwidth * at(machine.link.zero_copy_efficiency, work.run_bytes);
  terms.work("loads over the link", Resource::kZeroCopy, exact(work.runs * work.run_bytes) / rate);
}

void add_dma(Terms& terms, const config::Hardware& machine, const Copy& work, const Path& path) {
  const Number issue = issue_of_run(machine.link, work);
  const EngineTime engine = engine_of_run(machine.link, work, path.bandwidth);
  const Resource thread = thread_of(work.issuer);
  terms.wait("copy latency", number(machine.link.copy_latency));
  terms.work("starts of the copy engine", path.engine, engine.start * work.runs);
  terms.work("turns of the copy engine", path.engine, engine.turn * work.runs);
  terms.work("copy engine", path.engine, engine.bytes * work.runs);
  if (work.kind == CopyKind::kPageable) {
    // Staging happens inside the call, one small buffer at a time: the thread is occupied, and nothing is left to
    // drain.
    terms.work("staging", thread, issue * work.runs);
  } else if (issue.value >= engine.seconds()) {
    terms.work("copy calls", thread, issue * work.runs);
    terms.wait("start of the last run", engine.start);
    terms.wait("turn of the last run", engine.turn);
    terms.wait("bytes of the last run", engine.bytes);
  } else {
    terms.issue("copy calls", thread, issue, issue.value * (work.runs - 1));
  }
}

}  // namespace

void add_copy(Terms& terms, const config::Hardware& machine, const Copy& work) {
  if (work.runs <= 0 || work.run_bytes <= 0) return;
  const Path path = path_of(machine.link, work.direction);
  if (work.kind == CopyKind::kZeroCopy) {
    add_zero_copy(terms, machine, work, path);
  } else {
    add_dma(terms, machine, work, path);
  }
  add_shared(terms, machine, work, path);
}

}  // namespace kvcast::hardware
