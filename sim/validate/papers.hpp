// Suite `papers`: what do published efficiency claims look like from here?
//
// Claims are data: files of configs/validation/papers. Each claim is answered by a formula over results of
// runs, or says why no model here can. Nothing is fitted here: what a run's numbers rest on is told with the claim.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/yaml.hpp"
#include "validate/formula.hpp"
#include "validate/suite.hpp"
#include "workload/record.hpp"

namespace kvcast::validate {

// An experiment that claims are computed from.
struct PaperRun {
  std::string name;       // letters, digits and _
  config::Node config;    // of a run, see config/run.hpp
  int largest_batch = 0;  // above 0: at the largest batch up to this one that fits in memory
  int index_heads = 0;    // above 0: nothing but the index of so many KV heads of one layer is built
  SourceLocation index_heads_at;
  std::vector<config::Node> on_other_traces;  // configurations of the same run, for how far the trace decides
  bool shifted = true;                        // its record says how far costs may move its times
  workload::Phases phases{false, false};      // those that a claim is computed from
};

// One way to read an under-specified setting.
struct Reading {
  std::string of;  // which one; empty where there is only one
  Formula predict;
};

struct Claim {
  Case base;                      // id, group, quantity, unit, expected, tolerance, size, texts, held_out
  std::vector<Reading> readings;  // the first is the prediction; empty: not answered, base.note says why
  std::optional<Formula> holds;   // of a trend: true where it comes out
};

struct Paper {
  std::string group;
  std::vector<PaperRun> runs;
  std::vector<Claim> claims;
};

// UserError for anything odd: a claim with both an answer and a reason for none, or neither, a formula that names no
// run, a run that no claim uses.
Paper read_paper(const std::string& path);
// All files of a folder, in alphabetical order; UserError where an id stands twice.
std::vector<Paper> read_papers(const std::string& folder);

// Runs what is asked and gives back the record of each (`kvcast run --json`; with `shifted` where asked for), in order.
using RunAll = std::function<std::vector<nlohmann::json>(const std::vector<PaperRun>&)>;

// The number NAME of a record, by its dotted path or by a short name:
//   tpot, ttft, tps        seconds a token, seconds to the first, tokens a second
//   hbm, decode_hbm, dram  bytes at the peak, while decoding, in host memory
//   build                  seconds to build the index, of a run with index_heads
//   fits, batch            1 where it fits in memory, else 0; sequences
//   kv_read, hbm_read, h2d, d2h, cpu_dram          bytes a step
//   h2d_pieces             contiguous pieces a step that come from the host
//   exposed.KIND, hidden.KIND                  seconds of a step's breakdown, 0 without
//   prefill.exposed.KIND, prefill.hidden.KIND  of the prefill's
//   hbm_of.OWNER, dram_of.OWNER  bytes while decoding; what is no letter or digit is written _; 0 without
// Nothing where the record has no such number, as times of what does not fit.
std::optional<double> number_of(const nlohmann::json& record, const std::string& name);

Suite papers(const std::vector<Paper>& papers, const RunAll& run_all);

}  // namespace kvcast::validate
