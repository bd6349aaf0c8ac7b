// A benchmark: its axes, and a function that prepares one case, checks it against a reference, and measures it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/axis.hpp"
#include "harness/json.hpp"
#include "harness/stop.hpp"

namespace kvcast::kernels {

// The machine, as far as benchmarks and the plausibility gate need it. 0: not known.
struct Machine {
  int cores = 1;
  double llc_bytes = 0;      // last-level cache of the host, as one core sees it
  double llc_all_bytes = 0;  // all of them together: of each socket, of each group of cores
  double dram_bytes = 0;     // free memory of the host
  int sm_count = 0;
  double l2_bytes = 0;
  double device_bytes = 0;     // free memory of the device
  double hbm_peak = 0;         // bytes/s
  double tensor_peak = 0;      // FLOP/s, fp16 dense, at the highest clock
  double link_peak = 0;        // bytes/s, one direction, at the best of both ends
  int compute_capability = 0;  // 80, 86, 90, ...
};

// cold: caches flushed before each call, calls apart. batch: calls back to back, caches as the calls leave them.
enum class Mode { kCold, kBatch };
const char* mode_name(Mode mode);

// Resource that the bytes of a call cross; peaks of the plausibility gate belong to these.
enum class Resource { kNone, kHbm, kH2d, kD2h, kBoth, kDram, kCache };
const char* resource_name(Resource resource);

// One running case. A benchmark reads its axes, may skip, states its work, and then checks or measures.
class State {
 public:
  State(const Case& axes, Mode mode, bool checking, const Limits& limits, const Machine& machine)
      : axes_(axes), mode_(mode), checking_(checking), limits_(limits), machine_(machine) {}

  // The value of an axis. Throws UsageError if the benchmark cannot read it.
  std::int64_t integer(const std::string& axis) const;
  const std::string& word(const std::string& axis) const;

  // Returns whether this is a reference check (small inputs, one call, compare) rather than a measurement.
  bool checking() const { return checking_; }
  Mode mode() const { return mode_; }
  const Limits& limits() const { return limits_; }
  const Machine& machine() const { return machine_; }

  // Skips a case that cannot be measured here, or makes no sense; the row gives the reason.
  void skip(const std::string& reason) { skip_reason_ = reason; }
  bool skipped() const { return !skip_reason_.empty(); }

  // The work of one call: bytes that cross the resource. distinct: bytes that must cross it at least, if fewer because
  // a cache may serve repeated reads; used by the plausibility gate.
  void moves(double bytes, Resource resource, double distinct = 0);
  void work(const std::string& name, double amount);
  // Records anything else worth keeping in the row.
  void note(const std::string& name, Json value);

  // Fails the check, with numbers, if ‖got − expected‖ / ‖expected‖ exceeds the tolerance, anything is not finite, or
  // the error of one element exceeds ten times the tolerance, relative to its size or to the usual size, whichever is
  // larger.
  void compare(const std::string& what, const std::vector<float>& got, const std::vector<float>& expected,
               double tolerance);
  void require(bool holds, const std::string& what);

  // Records seconds per call from a sampler.
  void record(const Sampler& sampler);

  const Case& axes() const { return axes_; }
  const std::string& skip_reason() const { return skip_reason_; }
  const std::vector<std::string>& failures() const { return failures_; }
  int comparisons() const { return comparisons_; }
  bool recorded() const { return recorded_; }
  double median() const { return median_; }
  double work_of(const std::string& name) const;  // 0 if not stated
  Resource resource() const { return resource_; }
  double distinct_bytes() const { return distinct_; }
  // The row of this case without the name of its benchmark and its repro command.
  Json row() const;

 private:
  Case axes_;
  Mode mode_;
  bool checking_;
  Limits limits_;
  Machine machine_;
  std::string skip_reason_;
  std::vector<std::string> failures_;
  int comparisons_ = 0;
  Json work_ = Json::object(), notes_ = Json::object(), time_;
  Json stop_;
  int samples_ = 0;
  double noise_ = 0, median_ = 0;
  Resource resource_ = Resource::kNone;
  double distinct_ = 0;
  bool recorded_ = false;
};

struct Bench {
  std::string name;
  std::string about;             // one sentence: the quantity measured, and the definition of its work
  std::vector<Axis> axes;        // the cases that are measured
  std::vector<Axis> check_axes;  // replaces axes of the same name for the reference check
  std::vector<Mode> modes;
  void (*run)(State&);
  int turns = 1;  // cases of it that a round over the benchmarks takes, where time is short
  // Chooses the cases that come before the others where time is short; null: none.
  bool (*urgent)(const Case&) = nullptr;
};

// Explains why a measured number cannot be true: it exceeds a known peak by more than 2 %. Empty if it does not. Cold
// bytes and all FLOP.
std::string implausible(const State& state);
// Rate over the link's stated peak where it is more than 1.02, else 0: a virtual machine may state a generation of PCIe
// that is not the link's, so that the number stays, with a note.
double above_stated_link(const State& state);

}  // namespace kvcast::kernels
