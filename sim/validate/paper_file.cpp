// Reads the claims of a paper.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "config/section.hpp"
#include "result/metric.hpp"
#include "validate/laid_over.hpp"
#include "validate/papers.hpp"

namespace kvcast::validate {
namespace {

using config::Node;
using config::Section;

class RunTable {
 public:
  RunTable(const Node& defaults, const Node& runs) : defaults_(defaults), runs_(runs) {}

  PaperRun read(const std::string& name) const {
    const Node whole = resolved(name, 0);
    PaperRun run;
    run.name = name, run.point.config = whole.without({"largest_batch", "index_heads", "traces"});
    study::Ask& ask = run.point.ask;
    ask.effects = simulate::Effects::kDetailed;
    if (const Node* traces = whole.find("traces")) {
      if (traces->kind() != Node::Kind::kList) throw UserError(traces->where(), "traces: expected a list of maps");
      for (const Node& other : traces->items()) {
        if (other.kind() != Node::Kind::kMap) throw UserError(other.where(), "traces: each as under trace, a map");
        const Node map = Node::map({{"trace", other}}, other.where());
        run.on_other_traces.push_back(laid_over(run.point.config, map));
      }
    }
    if (const Node* limit = whole.find("largest_batch")) {
      ask.largest_batch = static_cast<int>(config::read_integer(*limit, "largest_batch", 1, 4096));
    }
    if (const Node* heads = whole.find("index_heads")) {
      ask.index_heads = static_cast<int>(config::read_integer(*heads, "index_heads", 1, 4096));
      ask.index_heads_at = heads->where();
      if (ask.largest_batch > 0) {
        throw UserError(heads->where(), "index_heads: an index is built at one batch: leave largest_batch out");
      }
    }
    return run;
  }

 private:
  Node resolved(const std::string& name, int depth) const {
    const Node& own = *runs_.find(name);
    const Node* like = own.find("like");
    if (like == nullptr) return laid_over(defaults_, own);
    const std::string other = config::read_text(*like, "like");
    if (runs_.find(other) == nullptr || depth > 8) {
      throw UserError(like->where(), fmt::format("like: no run \"{}\" above this one", other));
    }
    return laid_over(resolved(other, depth + 1), own.without({"like"}));
  }

  const Node& defaults_;
  const Node& runs_;
};

Reading read_reading(Section& section, std::string of) {
  Reading reading{std::move(of), Formula(section.text("predict"), section.where("predict")), {}};
  if (section.has("holds")) reading.holds.emplace(section.text("holds"), section.where("holds"));
  return reading;
}

std::vector<Reading> read_readings(Section& section) {
  std::vector<Reading> readings;
  if (section.has("predict")) readings.push_back(read_reading(section, section.text("reading", "")));
  if (!section.has("others")) return readings;
  for (const Node& item : section.node("others").items()) {
    Section other(item, "reading");
    readings.push_back(read_reading(other, other.text("reading")));
    other.finish();
  }
  return readings;
}

Claim read_claim(const Node& node, const std::string& group, const std::string& source) {
  Section section(node, "claim");
  Claim claim;
  Case& c = claim.base;
  c.id = section.text("id");
  c.group = group;
  c.quantity = section.text("quantity");
  c.unit = section.text("unit", "");
  if (section.has("published")) c.expected = section.number("published", -1e18, 1e18);
  if (section.has("context")) c.size = static_cast<double>(section.integer("context", 1, 100'000'000));
  c.source = source + ", " + section.text("where");
  c.tolerance = section.number("tolerance", 0, 10, 0.15);
  c.depends_on = section.text("depends_on", "");
  c.note = section.text("note", "");
  c.held_out = section.flag("held_out", true);
  c.chosen_knowing = section.flag("chosen_knowing", true);
  claim.times = section.text("times", "");
  claim.readings = read_readings(section);
  const std::string reason = section.text("unanswered", "");
  section.finish();
  if (reason.empty() == claim.readings.empty()) {
    throw UserError(node.where(), fmt::format("{}: give either predict or unanswered", c.id));
  }
  if (!reason.empty()) c.note = reason;
  const bool number = c.expected.has_value();
  const bool mixed =
      std::ranges::any_of(claim.readings, [&](const Reading& r) { return number && r.holds.has_value(); }) ||
      (!claim.readings.empty() && !number && !claim.is_trend());
  if (mixed) {
    throw UserError(node.where(), fmt::format("{}: give either published (a number) or holds (a trend)", c.id));
  }
  if (!c.held_out && c.depends_on.empty()) {
    throw UserError(node.where(), fmt::format("{}: held_out: false needs depends_on, the fitted parameters", c.id));
  }
  return claim;
}

// The runs that claims name, and whether a claim asks if the run fits in memory.
using UsedRuns = std::map<std::string, bool>;

// Checks that every name of a formula is RUN.NUMBER, and records the runs.
void check_names(const Formula& formula, const Node& runs, UsedRuns& used) {
  for (const std::string& name : formula.names()) {
    const std::string run = name.substr(0, name.find('.'));
    if (run == name || runs.find(run) == nullptr) {
      std::vector<std::string> known;
      for (const auto& entry : runs.entries()) known.push_back(entry.first);
      throw UserError(formula.where(), fmt::format("\"{}\" is no number of a run", name), known);
    }
    const std::string number = name.substr(run.size() + 1);
    if (!result::is_number_name(number)) {
      throw UserError(formula.where(),
                      fmt::format("\"{}\" is no number of a result; `kvcast metrics` lists them", number));
    }
    bool& asks_for_fit = used[run];
    asks_for_fit = asks_for_fit || number == "fits";
  }
}

}  // namespace

Paper read_paper(const std::string& path) {
  const Node file = config::load_yaml(path);
  Section section(file, "paper");
  Paper paper;
  paper.group = section.text("paper");
  const std::string source = section.text("source");
  const Node defaults = section.optional_node("defaults").value_or(Node::map({}, file.where()));
  const Node runs = section.optional_node("runs").value_or(Node::map({}, file.where()));
  UsedRuns used;
  for (const Node& node : section.node("claims").items()) {
    Claim claim = read_claim(node, paper.group, source);
    for (const Reading& r : claim.readings) {
      check_names(r.predict, runs, used);
      if (r.holds) check_names(*r.holds, runs, used);
    }
    paper.claims.push_back(std::move(claim));
  }
  section.finish();
  const RunTable table(defaults, runs);
  for (const auto& [name, node] : runs.entries()) {
    const bool base = std::ranges::any_of(runs.entries(), [&](const auto& other) {
      const Node* like = other.second.find("like");
      return like != nullptr && like->kind() == Node::Kind::kScalar && like->text() == name;
    });
    if (used.count(name) == 0 && !base) throw UserError(runs.key_where(name), fmt::format("no claim uses {}", name));
    if (used.count(name) == 0) continue;
    paper.runs.push_back(table.read(name));
    paper.runs.back().point.ask.fit_effects = used.at(name);
  }
  return paper;
}

std::vector<Paper> read_papers(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".yaml") paths.push_back(entry.path().string());
  }
  if (paths.empty()) throw UserError({folder, 0, 0}, "no claims here (*.yaml)");
  std::ranges::sort(paths);
  std::vector<Paper> papers;
  std::set<std::string> ids;
  for (const std::string& path : paths) {
    papers.push_back(read_paper(path));
    for (const Claim& claim : papers.back().claims) {
      if (!ids.insert(claim.base.id).second) {
        throw UserError({path, 0, 0}, fmt::format("claim {} appears twice", claim.base.id));
      }
    }
  }
  return papers;
}

}  // namespace kvcast::validate
