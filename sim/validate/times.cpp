#include "validate/times.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/csv.hpp"
#include "base/quantile.hpp"
#include "base/units.hpp"
#include "config/find.hpp"
#include "config/left_out.hpp"
#include "hardware/cost_model.hpp"
#include "validate/kernels.hpp"
#include "validate/transfer.hpp"

namespace kvcast::validate {
namespace {

constexpr double kShare = 0.8;  // share of the numbers that an interval is meant to contain

// The half-width of OutsideErrors that a group has, and the key under which it is written.
struct Group {
  const char* key;
  std::vector<const char*> groups;
  Value config::OutsideErrors::*half_width;
  // The share of stated uncertainties that the group's times need, and its key; without one, all.
  Value config::OutsideErrors::*costs = nullptr;
  const char* costs_key = nullptr;
};
// Points held out of a fit say nothing about kernels in other releases and programs; numbers that others measured do.
const Group kGroups[] = {
    {"kernels", {kOtherKernels}, &config::OutsideErrors::kernels},
    {"derived_kernels", {kDerivedCards}, &config::OutsideErrors::derived_kernels},
    {"other_kernels", {kOtherCards}, &config::OutsideErrors::other_kernels},
    {"fused", {kFusedRuntimes, kLatentAttention, kExperts, kModelsOf2026}, &config::OutsideErrors::fused},
    {"eager",
     {kEagerFrameworks, kTransformers5},
     &config::OutsideErrors::eager,
     &config::OutsideErrors::eager_costs,
     "eager_costs"},
    {"eager_prompts", {kEagerPrompts}, &config::OutsideErrors::eager_prompts},
    {"policies", {kPoliciesInEngines}, &config::OutsideErrors::policies},
    {"eager_policies", {kPoliciesInEagerFrameworks}, &config::OutsideErrors::eager_policies}};

// Smallest half-width of a group from a single source, which says little about the next one: a judgement.
constexpr double kLeastOfOne = 0.2;
// Shares of stated uncertainties that are tried. Half of each stays, since no source's host is like the next one's.
constexpr double kShares[] = {1, 0.9, 0.8, 0.7, 0.6, 0.5};

// A row of configs/validation/times/kernels.csv: attention of one layer, its keys and values copied to the device or
// read from the host, or the product of `queries` rows with a k x n matrix.
class KernelRow : public CsvCells {
 public:
  explicit KernelRow(CsvCells cells) : CsvCells(std::move(cells)) {}

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
    c.group = machine.fit == config::TimesOrigin::kFitted    ? kOtherKernels
              : machine.fit == config::TimesOrigin::kDerived ? kDerivedCards
                                                             : kOtherCards;
    c.quantity = quantity() + ", " + machine.title;
    c.expected = number("latency_us"), c.predicted = cost.alone * kMicro;
    const bool copies = std::holds_alternative<graph::Copy>(op.work);
    const double link = copies ? bytes() / machine.link.theory_bandwidth : 0;
    c.baseline = std::max(link, roofline_seconds(op.work, machine.gpu)) * kMicro;
    c.tolerance = 0.15, c.origin = cost.origin, c.source = text("source"), c.note = text("note");
    const config::OutsideErrors left_out = config::left_out();
    set_interval(c, cost.uncertainty, std::max<double>(left_out.kernels, left_out.of(machine.fit)));
    c.verdict = verdict_of(c, false);
    return c;
  }

 private:
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
};

void add_kernels(const std::string& path, Suite& suite) {
  for (CsvCells& row : read_table(path, "the table of kernels",
                                  {"id", "source", "profile", "work", "batch", "queries", "tokens", "n_q", "n_kv",
                                   "head_dim", "page", "flash_2", "n", "k", "held_out", "latency_us", "note"})) {
    suite.cases.push_back(KernelRow(std::move(row)).predicted());
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

// Logarithms: the error of a case, and the half-width that its costs account for.
struct Residual {
  std::string source;
  double error = 0;  // of expected over predicted, its size
  double costs = 0;  // on that side, from uncertainties as stated
  // Smallest half-width for which the interval contains the number, with this share of uncertainties.
  double needed(double share) const { return std::sqrt(std::max(0.0, error * error - share * costs * share * costs)); }
  double width(double share, double half_width) const { return std::hypot(share * costs, half_width); }
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
  const config::OutsideErrors left_out = config::left_out();
  const double in_use = left_out.*group.half_width;
  const double share = group.costs == nullptr ? 1.0 : double{left_out.*group.costs};
  std::vector<Residual> all;
  for (const Case& c : suite.cases) {
    const bool in_group = std::ranges::any_of(group.groups, [&](const char* name) { return c.group == name; });
    if (!in_group || !c.held_out || !c.predicted || !c.expected || !c.low || !c.high) continue;
    Residual& r = all.emplace_back();
    r.source = source_of(c);
    const bool longer = *c.expected > *c.predicted;
    r.error = std::abs(std::log(*c.expected / *c.predicted));
    const double side = longer ? std::log(*c.high / *c.predicted) : std::log(*c.predicted / *c.low);
    r.costs = std::sqrt(std::max(0.0, side * side - in_use * in_use)) / share;
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

// A share of uncertainties and the half-width with which four fifths of the numbers lie in their intervals.
struct Spread {
  double share = 1, half_width = 0;
};

Spread with_share(const std::vector<Residual>& all, double share, const std::string& without) {
  std::vector<double> needed;
  for (const Residual& r : all) {
    if (r.source != without) needed.push_back(r.needed(share));
  }
  return {share, enough_for(std::move(needed))};
}

// The spread of a group without one of its sources: of those with the narrowest intervals in the median, up to
// kEqualWidths, the one that trusts stated uncertainties least. Which of equal ones is a hair narrower changes with any
// number, and the half-width also holds where costs state little.
Spread spread_of(const std::vector<Residual>& all, const Group& group, const std::string& without) {
  constexpr double kEqualWidths = 1.02;
  if (group.costs == nullptr || all.empty()) return with_share(all, 1, without);
  std::vector<Spread> tried;
  for (const double share : kShares) tried.push_back(with_share(all, share, without));
  const auto width = [&](const Spread& s) {
    std::vector<double> widths;
    for (const Residual& r : all) widths.push_back(r.width(s.share, s.half_width));
    return quantile(widths, 0.5);
  };
  const double narrowest = width(*std::ranges::min_element(tried, {}, width));
  std::erase_if(tried, [&](const Spread& s) { return width(s) > kEqualWidths * narrowest; });
  return *std::ranges::min_element(tried, {}, &Spread::share);
}

Widening widening_of(const Suite& suite, const Group& group) {
  const std::vector<Residual> all = residuals(suite, group);
  Widening w{group.key, fmt::format("{}", fmt::join(group.groups, ", ")), static_cast<int>(all.size()), 0, 0, 0, 0, "",
             1};
  std::set<std::string> sources;
  for (const Residual& r : all) sources.insert(r.source);
  w.sources = static_cast<int>(sources.size());
  const Spread spread = spread_of(all, group, "");
  w.learnt = spread.half_width, w.costs = spread.share;
  if (group.costs_key != nullptr) w.costs_key = group.costs_key;
  w.half_width = w.sources == 1 ? std::max(w.learnt, kLeastOfOne) : w.learnt;
  int held = 0;
  for (const std::string& left_out : sources) {
    const Spread others = spread_of(all, group, left_out);
    for (const Residual& r : all) held += r.source == left_out && r.needed(others.share) <= others.half_width ? 1 : 0;
  }
  if (!all.empty()) w.coverage_apart = held / static_cast<double>(all.size());
  return w;
}

// Four fifths of the numbers are to lie in their intervals, where there are enough to tell: of the groups from which
// one half-width is learnt, and of kernels whose profile states its own error.
void add_coverage(Suite& suite, const std::vector<GroupSummary>& all, const std::vector<const char*>& groups) {
  constexpr int kEnough = 20;
  constexpr double kLeast = 73, kMost = 87;  // per cent
  int n = 0, covered = 0;
  for (const GroupSummary& s : all) {
    if (std::ranges::none_of(groups, [&](const char* one) { return s.group == one; })) continue;
    n += s.intervals.costs.n, covered += s.intervals.costs.covered;
  }
  if (n < kEnough) return;
  const std::string what = fmt::format("{}, numbers in their intervals", fmt::join(groups, ", "));
  suite.budgets.push_back({what, "%", kLeast, 100.0 * covered / n, true});
  suite.budgets.push_back({what, "%", kMost, 100.0 * covered / n, false});
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
  const std::vector<GroupSummary> all = summarise(suite);
  add_coverage(suite, all, {kFittedCards});
  for (const Group& group : kGroups) add_coverage(suite, all, group.groups);
  for (const GroupSummary& s : all) {
    if (s.group == kDerivedCards) add_budget(suite, s, 15, 35);
    if (s.group == kFusedRuntimes) add_budget(suite, s, 10, 25);
    if (s.group == kEagerFrameworks) add_budget(suite, s, 20, 40);
  }
  return suite;
}

std::vector<Widening> widenings(const Suite& suite) {
  std::vector<Widening> all;
  for (const Group& group : kGroups) all.push_back(widening_of(suite, group));
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
    if (w.costs_key.empty()) continue;
    text += fmt::format(
        "{}: {{value: {:.1f}, origin: fitted, source: \"the same residuals; the share of the stated uncertainties of "
        "numbers, half of it or more, with which intervals are the narrowest in the median: the least of those within "
        "2 %\"}}\n",
        w.costs_key, w.costs);
  }
  return text;
}

}  // namespace kvcast::validate
