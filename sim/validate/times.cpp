#include "validate/times.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>

#include "base/csv.hpp"
#include "base/units.hpp"
#include "config/find.hpp"
#include "config/left_out.hpp"
#include "hardware/cost_model.hpp"
#include "validate/kernels.hpp"
#include "validate/transfer.hpp"

namespace kvcast::validate {
namespace {

constexpr double kShare = 0.8;  // share of the numbers that an interval is meant to contain

// The half-width of LeftOut that a group has, and the key under which it is written.
struct Group {
  const char* key;
  const char* group;
  Value config::LeftOut::*half_width;
  bool by_source;  // whether numbers of one source err together
  // Smallest half-width allowed, a judgement: the numbers of engines and frameworks were known when these were written
  // down, so their residuals are smaller than those of the next ones will be.
  double least;
};
// Points held out of a fit say nothing about kernels in other releases and programs; numbers that others measured do.
constexpr Group kGroups[] = {
    {"kernels", kOtherKernels, &config::LeftOut::kernels, false, 0},
    {"derived_kernels", kDerivedCards, &config::LeftOut::derived_kernels, false, 0},
    {"other_kernels", kOtherCards, &config::LeftOut::other_kernels, false, 0},
    {"fused", kFusedRuntimes, &config::LeftOut::fused, true, 0.1},
    {"eager", kEagerFrameworks, &config::LeftOut::eager, true, 0.2},
    {"policies", kPoliciesInEngines, &config::LeftOut::policies, true, 0.2},
    {"eager_policies", kPoliciesInEagerFrameworks, &config::LeftOut::eager_policies, true, 0.2}};

// A row of configs/validation/times/kernels.csv: attention of one layer, its keys and values copied to the device or
// read from the host, or the product of `queries` rows with a k x n matrix.
class KernelRow {
 public:
  KernelRow(const CsvHeader& header, const CsvRow& row) : header_(header), row_(row) {}

  Case predicted() const {
    const std::string profile = text("profile");
    config::Framework framework;
    if (number("flash_2") > 0) framework.attention_kernels = config::Framework::AttentionKernels::kFlash2;
    const config::Hardware machine = config::read_hardware(config::find_config("hardware", profile, where("profile")));
    const hardware::CostModel model(machine, framework);
    const graph::Op op = work();
    const hardware::Cost cost = model.cost(op);
    Case c;
    c.id = text("id"), c.unit = "us", c.held_out = number("held_out") > 0;
    c.group = machine.fit == config::Fit::kFitted    ? kOtherKernels
              : machine.fit == config::Fit::kDerived ? kDerivedCards
                                                     : kOtherCards;
    c.quantity = quantity() + ", " + machine.title;
    c.expected = number("latency_us"), c.predicted = cost.alone * kMicro;
    const bool copies = std::holds_alternative<graph::Copy>(op.work);
    const double link = copies ? bytes() / machine.link.theory_bandwidth : 0;
    c.baseline = std::max(link, roofline_seconds(op.work, machine.gpu)) * kMicro;
    c.tolerance = 0.15, c.origin = cost.origin, c.source = text("source"), c.note = text("note");
    set_interval(c, cost.uncertainty, config::left_out().of(machine.fit));
    c.verdict = verdict_of(c, false);
    return c;
  }

 private:
  const std::string& text(const char* column) const { return row_.fields.at(header_.at(column)); }
  SourceLocation where(const char* column) const { return row_.at(header_.at(column)); }
  double number(const char* column) const {
    const auto value = parse_quantity(text(column), Dimension::kNone);
    if (!value || *value < 0)
      throw UserError(where(column), fmt::format("{}: expected a number of at least 0", column));
    return *value;
  }
  std::string quantity() const {
    if (text("work") == "gemm") return fmt::format("GEMM {} x {} x {}", text("queries"), text("n"), text("k"));
    return fmt::format("{}, {} query and {} KV heads, {} queries, {} tokens before", text("work"), text("n_q"),
                       text("n_kv"), text("queries"), text("tokens"));
  }
  double pairs() const { return number("batch") * number("n_kv") * (number("tokens") + number("queries")); }
  double bytes() const { return 2 * pairs() * number("head_dim") * config::Model::kElementBytes; }

  graph::Op work() const {
    graph::Op op;
    const std::string work = text("work");
    const double q = number("queries"), before = number("tokens"), head_dim = number("head_dim");
    const double rows = number("batch") * number("n_kv"), group = number("n_q") / number("n_kv");
    if (work == "prefill_attention") {
      const double seen = number("batch") * number("n_q") * (q * before + q * (q + 1) / 2);
      const double queries = number("batch") * number("n_q") * q * head_dim * config::Model::kElementBytes;
      op.work = graph::PrefillAttention{4 * seen * head_dim, bytes() + queries, queries};
    } else if (work == "decode_attention") {
      op.work = graph::DecodeAttention{.rows = rows,
                                       .group = group,
                                       .head_dim = head_dim,
                                       .tokens = rows * before,
                                       .longest = before,
                                       .unit_bytes = number("page") * head_dim * config::Model::kElementBytes};
    } else if (work == "gemm") {
      op.work = graph::Gemm{q, number("n"), number("k"), config::Model::kElementBytes};
    } else if (work == "copy_in" || work == "read_host") {
      const double runs = work == "copy_in" ? 2 : 1;
      const graph::CopyKind kind = work == "copy_in" ? graph::CopyKind::kMemcpyAsync : graph::CopyKind::kZeroCopy;
      op.lane = graph::Lane::kCopyA;
      op.work = graph::Copy{graph::Direction::kHostToDevice, kind, runs, bytes() / runs};
    } else {
      throw UserError(where("work"), fmt::format("work: \"{}\"", work),
                      {"prefill_attention", "decode_attention", "gemm", "copy_in", "read_host"});
    }
    return op;
  }

  const CsvHeader& header_;
  const CsvRow& row_;
};

void add_kernels(const std::string& path, Suite& suite) {
  const std::vector<CsvRow> rows = read_csv(path, "the table of kernels");
  if (rows.empty()) throw UserError({path, 0, 0}, "an empty table");
  const CsvHeader header(rows.front());
  for (const char* column : {"id", "source", "profile", "work", "batch", "queries", "tokens", "n_q", "n_kv", "head_dim",
                             "page", "flash_2", "n", "k", "held_out", "latency_us", "note"}) {
    if (!header.has(column)) throw UserError(rows.front().where, fmt::format("no column \"{}\"", column));
  }
  for (std::size_t i = 1; i < rows.size(); ++i) {
    header.check(rows[i]);
    suite.cases.push_back(KernelRow(header, rows[i]).predicted());
  }
}

// Claims about times; those of other papers are listed under the group that they name.
std::vector<Case> claims(std::vector<Paper> papers, const RunAll& run_all) {
  for (Paper& paper : papers) {
    std::erase_if(paper.claims, [](const Claim& c) { return c.times.empty(); });
    for (Claim& claim : paper.claims) claim.base.group = claim.times;
    if (paper.claims.empty()) paper.runs.clear();
  }
  return cases_of(papers, run_all);
}

// Error of a case and the half-width that its costs account for, as shares of the prediction.
struct Residual {
  std::string source;
  double error = 0;  // expected / predicted − 1
  double costs = 0;  // half-width on that side
  // Smallest half-width of the logarithm for which the interval contains the number.
  double needed() const {
    const double rest = std::sqrt(std::max(0.0, error * error - costs * costs));
    return error > 0 ? std::log1p(rest) : -std::log1p(-std::min(rest, 0.999));
  }
};

// Who measured: the file's source or, if that collects others, the source that the claim names.
std::string source_of(const Case& c) {
  const std::size_t comma = c.source.find(',');
  const std::string first = c.source.substr(0, comma);
  if (first != kOthers || comma == std::string::npos) return first;
  const std::string rest = c.source.substr(comma + 2);
  return rest.substr(0, rest.find(','));
}

std::vector<Residual> residuals(const Suite& suite, const Group& group) {
  const double in_use = config::left_out().*group.half_width;
  std::vector<Residual> all;
  for (const Case& c : suite.cases) {
    if (c.group != group.group || !c.held_out || !c.predicted || !c.expected || !c.low || !c.high) continue;
    Residual& r = all.emplace_back();
    r.source = source_of(c);
    r.error = *c.expected / *c.predicted - 1;
    const double side = r.error > 0 ? *c.high / *c.predicted - 1 : 1 - *c.low / *c.predicted;
    const double rest = r.error > 0 ? std::exp(in_use) - 1 : 1 - std::exp(-in_use);
    r.costs = std::sqrt(std::max(0.0, side * side - rest * rest));
  }
  return all;
}

// Smallest half-width that suffices for four fifths of these and one more.
double enough_for(std::vector<double> needed) {
  if (needed.empty()) return 0;
  std::ranges::sort(needed);
  const double n = static_cast<double>(needed.size());
  const auto rank = static_cast<std::size_t>(std::ceil(kShare * (n + 1)));
  return needed[std::min(rank, needed.size()) - 1];
}

// Half-width of a group without one of its sources. Steps of one source err together, since they share engine, host and
// GPU: for such groups the next source counts, and the half-width suffices for four fifths of the sources, each by four
// fifths of its own numbers.
double half_width_of(const std::vector<Residual>& all, const Group& group, const std::string& without) {
  std::map<std::string, std::vector<double>> by_source;
  for (const Residual& r : all) {
    if (r.source != without) by_source[group.by_source ? r.source : ""].push_back(r.needed());
  }
  std::vector<double> needed;
  for (auto& [source, own] : by_source) needed.push_back(enough_for(std::move(own)));
  return enough_for(std::move(needed));
}

Widening widening_of(const Suite& suite, const Group& group) {
  const std::vector<Residual> all = residuals(suite, group);
  Widening w{group.key, group.group, static_cast<int>(all.size()), 0, 0, 0, 0};
  std::set<std::string> sources;
  for (const Residual& r : all) sources.insert(r.source);
  w.sources = static_cast<int>(sources.size());
  w.learnt = half_width_of(all, group, "");
  w.half_width = std::max(w.learnt, group.least);
  int held = 0;
  for (const std::string& left_out : sources) {
    const double half_width = half_width_of(all, group, left_out);
    for (const Residual& r : all) held += r.source == left_out && r.needed() <= half_width ? 1 : 0;
  }
  if (!all.empty()) w.coverage_apart = held / static_cast<double>(all.size());
  return w;
}

void add_budget(Suite& suite, const GroupSummary& s, double median, double p90) {
  const auto value = [&](double x) { return s.errors.n > 0 ? std::optional<double>(100 * x) : std::nullopt; };
  suite.budgets.push_back({s.group + ", median error", "%", median, value(s.errors.median)});
  suite.budgets.push_back({s.group + ", p90 error", "%", p90, value(s.errors.p90)});
}

}  // namespace

Suite times(const std::vector<Paper>& papers, const std::string& kernel_table, const RunAll& run_all) {
  Suite suite;
  suite.name = "times";
  suite.question = "How accurately are times that others measured predicted, and do the intervals contain them?";
  suite.baseline_is = "bytes over the bandwidth, products over the peak";
  suite.size_unit = "context, tokens";
  for (Case& c : kernels_of_profiles().cases) {
    if (c.source.empty() || !c.baseline) continue;  // work of hosts
    c.group = kFittedCards;
    suite.cases.push_back(std::move(c));
  }
  for (Case& c : transfers()) suite.cases.push_back(std::move(c));
  add_kernels(kernel_table, suite);
  for (Case& c : claims(papers, run_all)) suite.cases.push_back(std::move(c));
  for (const GroupSummary& s : summarise(suite)) {
    if (s.group == kDerivedCards) add_budget(suite, s, 15, 35);
    if (s.group == kFusedRuntimes) add_budget(suite, s, 10, 25);
    if (s.group == kEagerFrameworks) add_budget(suite, s, 20, 40);
  }
  return suite;
}

std::vector<Widening> widenings(const Suite& suite) {
  std::vector<Widening> all;
  for (const Group& group : kGroups) {
    Widening& w = all.emplace_back(widening_of(suite, group));
    // Whatever is left out for a kernel on a GPU with a fit is also left out on a GPU without one.
    const std::string_view of = group.group;
    if (of == kDerivedCards || of == kOtherCards) w.half_width = std::max(w.half_width, all[0].half_width);
  }
  return all;
}

std::string intervals_text(const std::vector<Widening>& widenings) {
  std::string text =
      "# Half-widths of 80 % intervals (natural logarithm of a time) for what the model leaves out, in addition to "
      "what uncertain numbers\n"
      "# explain. Written by `kvcast validate times --intervals configs/validation/intervals.yaml`.\n";
  for (const Widening& w : widenings) {
    const std::string check =
        w.sources < 2
            ? "no other source to compare with"
            : fmt::format("the half-width that the other sources need covers {:.0f} % of each source's numbers",
                          100 * w.coverage_apart);
    text += fmt::format(
        "{}: {{value: {:.3f}, origin: {}, source: \"{}; residuals of {} numbers from {} source{} need {:.3f}; {}\"}}\n",
        w.key, w.half_width, w.half_width > w.learnt ? "assumed, uncertainty: 50 %" : "fitted", w.group, w.n, w.sources,
        w.sources == 1 ? "" : "s", w.learnt, check);
  }
  return text;
}

}  // namespace kvcast::validate
