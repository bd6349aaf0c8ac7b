// The state machine is nvbench's with FlashInfer's order: a kernel is compared with its reference before it is timed,
// and one that is wrong gives no number.
#include "harness/run.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>

#include "harness/document.hpp"

namespace kvcast::kernels {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Pending {
  const Bench* bench;
  Case axes;
  Mode mode;
};

std::string repro_command(const std::string& program, const Pending& p) {
  std::string out = program + " --bench " + p.bench->name;
  for (const auto& [name, value] : p.axes) out += " --axis " + name + "=" + value;
  return out + " --mode " + mode_name(p.mode);
}

// All check cases of one benchmark; the first failures as text.
std::string check_bench(const Bench& bench, const Options& options, const Machine& machine, bool quiet) {
  std::vector<Axis> axes = bench.axes;
  replace_axes(axes, bench.check_axes);
  int comparisons = 0, cases = 0;
  std::string skip;
  for (const Case& c : product(axes)) {
    State state(c, bench.modes.empty() ? Mode::kCold : bench.modes.front(), true, options.limits, machine);
    bench.run(state);
    ++cases;
    if (state.skipped()) skip = state.skip_reason();
    comparisons += state.comparisons();
    if (!state.failures().empty()) {
      return "[" + describe(c) + "] " + state.failures().front();
    }
  }
  if (!quiet) {
    std::printf("%-28s %5d cases, %6d comparisons hold%s%s\n", bench.name.c_str(), cases, comparisons,
                skip.empty() ? "" : "; skipped: ", skip.c_str());
    std::fflush(stdout);
  }
  return comparisons == 0 && skip.empty() ? "nothing was compared" : "";
}

// What tells a row from all others.
Json identity(const Pending& p, int pass, Json row) {
  row["bench"] = p.bench->name;
  row["pass"] = pass;
  return row;
}

Json finish_row(const Program& program, const Pending& p, int pass, State& state) {
  if (!state.skipped() && !state.recorded()) state.skip("no sample was taken");
  if (!state.skipped()) {
    if (const std::string why = implausible(state); !why.empty()) state.skip(why);
  }
  Json row = identity(p, pass, Json::object());
  Json rest = state.row();
  for (const auto& [name, value] : rest.members()) row[name] = value;
  row["repro"] = repro_command(program.name, p);
  return row;
}

void print_row(const Pending& p, const State& state) {
  const std::string label = p.bench->name + " [" + describe(p.axes) + "] " + mode_name(p.mode);
  if (state.skipped()) {
    std::printf("%s: skipped: %s\n", label.c_str(), state.skip_reason().c_str());
  } else {
    std::printf("%s: %.3f us", label.c_str(), state.median() * 1e6);
    const double bytes = state.work_of("bytes");
    if (bytes > 0) std::printf("  %.1f GB/s", bytes / state.median() * 1e-9);
    std::printf("\n");
  }
  std::fflush(stdout);
}

std::vector<Pending> pending_cases(const std::vector<Bench>& benches, int pass, const Document& document) {
  std::vector<Pending> pending;
  for (const Bench& bench : benches) {
    for (const Case& c : product(bench.axes)) {
      for (const Mode mode : bench.modes) {
        const Pending one{&bench, c, mode};
        const Json row = identity(one, pass, State(c, mode, false, {}, {}).row());
        if (!document.has(Document::key_of(row))) pending.push_back(one);
      }
    }
  }
  return pending;
}

// Round robin over the benchmarks, each in an order that spreads over its cases: what a budget leaves unmeasured is
// then a thinner grid everywhere, and not everything at the end of the list.
std::vector<Pending> spread(const std::vector<Pending>& cases) {
  std::vector<std::vector<Pending>> groups;
  for (const Pending& p : cases) {
    if (groups.empty() || groups.back().front().bench != p.bench) groups.emplace_back();
    groups.back().push_back(p);
  }
  std::vector<std::vector<std::size_t>> orders;
  for (const auto& group : groups) orders.push_back(spread_order(group.size()));
  std::vector<Pending> out;
  for (std::size_t round = 0; out.size() < cases.size(); ++round) {
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (round < groups[g].size()) out.push_back(groups[g][orders[g][round]]);
    }
  }
  return out;
}

}  // namespace

std::vector<std::size_t> spread_order(std::size_t n) {
  std::size_t bits = 0;
  while ((std::size_t{1} << bits) < n) ++bits;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < (std::size_t{1} << bits); ++i) {
    std::size_t reversed = 0;
    for (std::size_t b = 0; b < bits; ++b) reversed |= ((i >> b) & 1) << (bits - 1 - b);
    if (reversed < n) order.push_back(reversed);
  }
  return order;
}

Limits share(const Limits& limits, double left, std::size_t cases_left) {
  const double even = left / static_cast<double>(std::max<std::size_t>(cases_left, 1));
  Limits out = limits;
  out.timeout = std::min(limits.timeout, std::max(1.5 * even, 1e-3));
  out.min_time = std::min(limits.min_time, 0.5 * out.timeout);
  return out;
}

namespace {

class Session {
 public:
  Session(const Program& program, const Options& options, const std::vector<Bench>& benches)
      : program_(program),
        options_(options),
        document_(options.json, program.environment),
        pending_(pending_cases(benches, options.pass, document_)) {
    if (options.budget > 0 || options.stop_after > 0) pending_ = spread(pending_);
  }

  int measure() {
    for (; next_ < pending_.size() && !time_is_up(); ++next_) measure_case(pending_[next_]);
    write();
    const std::size_t left = pending_.size() - next_;
    std::printf("%zu cases measured, %d checks failed, %zu left, %.1f s\n", next_, failed_, left,
                seconds_since(start_));
    if (failed_ > 0) return 1;
    return left > 0 ? 3 : 0;
  }

 private:
  bool time_is_up() const {
    const double spent = seconds_since(start_);
    return (options_.stop_after > 0 && spent > options_.stop_after) || (options_.budget > 0 && spent > options_.budget);
  }
  Limits limits_now() const {
    if (options_.budget <= 0) return options_.limits;
    return share(options_.limits, options_.budget - seconds_since(start_), pending_.size() - next_);
  }

  void measure_case(const Pending& p) {
    const auto [known, fresh] = verdicts_.try_emplace(p.bench->name);
    if (fresh) {
      known->second = check_bench(*p.bench, options_, program_.machine, options_.quiet);
      if (!known->second.empty()) {
        ++failed_;
        std::printf("%s: WRONG %s\n", p.bench->name.c_str(), known->second.c_str());
      }
    }
    State state(p.axes, p.mode, false, limits_now(), program_.machine);
    if (known->second.empty()) {
      p.bench->run(state);
    } else {
      state.skip("the reference check failed: " + known->second);
    }
    Json row = finish_row(program_, p, options_.pass, state);
    if (!options_.quiet) print_row(p, state);
    // A failed check is no result: the next run tries again.
    if (known->second.empty()) document_.add(std::move(row));
    if (seconds_since(saved_) > 10) write();
  }

  void write() {
    saved_ = Clock::now();
    document_.save();
    if (options_.csv.empty()) return;
    std::ofstream out(options_.csv);
    out << to_csv(document_.json());
    if (!out) throw UsageError(options_.csv + ": cannot be written");
  }

  const Program& program_;
  const Options& options_;
  Document document_;
  std::vector<Pending> pending_;
  std::size_t next_ = 0;
  int failed_ = 0;
  std::map<std::string, std::string> verdicts_;
  Clock::time_point start_ = Clock::now(), saved_ = Clock::now();
};

int refcheck(const Program& program, const Options& options, const std::vector<Bench>& benches) {
  int failed = 0;
  for (const Bench& bench : benches) {
    const std::string why = check_bench(bench, options, program.machine, options.quiet);
    if (why.empty()) continue;
    ++failed;
    std::printf("%s: WRONG %s\n", bench.name.c_str(), why.c_str());
  }
  std::printf("%zu benchmarks checked, %d wrong\n", benches.size(), failed);
  return failed > 0 ? 1 : 0;
}

}  // namespace

std::string list_text(const std::vector<Bench>& benches) {
  std::string out;
  for (const Bench& bench : benches) {
    out += bench.name + ": " + bench.about + "\n";
    for (const Axis& axis : bench.axes) {
      out += "  " + axis.name + " =";
      for (const std::string& value : axis.values) out += " " + value;
      out += "\n";
    }
    out += "  modes =";
    for (const Mode mode : bench.modes) out += std::string(" ") + mode_name(mode);
    out += "\n";
  }
  return out;
}

int run_program(const Program& program, const Options& options) {
  const std::vector<Bench> benches = select(program.benches, options);
  if (options.list) {
    std::fputs(list_text(benches).c_str(), stdout);
    return 0;
  }
  if (options.refcheck) return refcheck(program, options, benches);
  return Session(program, options, benches).measure();
}

int guarded_main(int argc, char** argv, const std::function<int(const Options&)>& body) {
  try {
    const Options options = parse_options({argv + 1, argv + argc});
    if (options.help) {
      std::fputs(help_text(argv[0]).c_str(), stdout);
      return 0;
    }
    return body(options);
  } catch (const UsageError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "failed: %s\n", error.what());
    return 1;
  }
}

}  // namespace kvcast::kernels
