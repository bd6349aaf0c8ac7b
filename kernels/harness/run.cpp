// The state machine is nvbench's with FlashInfer's order: a kernel is compared with its reference before it is timed,
// and a wrong one gives no number.
#include "harness/run.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>

#include "harness/document.hpp"
#include "harness/watchdog.hpp"

namespace kvcast::kernels {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string repro_command(const std::string& program, const Pending& p) {
  std::string out = program + " --bench " + p.bench->name;
  for (const auto& [name, value] : p.axes) out += " --axis " + name + "=" + value;
  return out + " --mode " + mode_name(p.mode);
}

// Returns the exception of the benchmark as text: out of memory, for example, or a call that the device rejects. A
// wrong command line passes through.
std::string run_case(const Bench& bench, State& state) {
  try {
    bench.run(state);
  } catch (const UsageError&) {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// Runs all check cases of one benchmark; returns the first failures as text.
std::string check_bench(const Bench& bench, const Options& options, const Machine& machine, bool quiet) {
  std::vector<Axis> axes = bench.axes;
  replace_axes(axes, bench.check_axes);
  int comparisons = 0, cases = 0;
  std::string skip;
  for (const Case& c : product(axes)) {
    State state(c, bench.modes.empty() ? Mode::kCold : bench.modes.front(), true, options.limits, machine);
    const std::string thrown = run_case(bench, state);
    if (!thrown.empty()) return "[" + describe(c) + "] failed: " + thrown;
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

// The parts that identify a row.
Json identity(const Pending& p, int pass, Json row) {
  row["bench"] = p.bench->name;
  row["pass"] = pass;
  return row;
}

Json finish_row(const Program& program, const Pending& p, int pass, State& state) {
  if (!state.skipped() && !state.recorded()) state.skip("no sample was taken");
  if (!state.skipped()) {
    if (const std::string why = implausible(state); !why.empty()) state.skip(why);
    if (const double times = above_stated_link(state); times > 0) state.note("times_stated_link", times);
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

Visits::Visits(std::vector<Pending> cases, bool spread) : spread_(spread), left_(cases.size()) {
  for (Pending& one : cases) {
    if (groups_.empty() || groups_.back().cases.front().bench != one.bench) groups_.emplace_back();
    groups_.back().cases.push_back(std::move(one));
  }
  for (Group& group : groups_) {
    std::vector<Pending> ordered;
    for (const std::size_t i : spread_order(spread ? group.cases.size() : 0)) ordered.push_back(group.cases[i]);
    if (!spread) continue;
    group.cases = std::move(ordered);
    if (const auto urgent = group.cases.front().bench->urgent) {
      std::stable_partition(group.cases.begin(), group.cases.end(), [&](const Pending& p) { return urgent(p.axes); });
    }
  }
}

const Pending* Visits::next(bool again) {
  if (left_ == 0) return nullptr;
  if (again && turn_ > 0) --turn_;
  while (true) {
    Group& group = groups_[group_ % groups_.size()];
    const bool has_turn = !spread_ || turn_ < group.cases.front().bench->turns;
    if (group.next < group.cases.size() && has_turn) {
      ++turn_, --left_;
      return &group.cases[group.next++];
    }
    ++group_, turn_ = 0;
  }
}

const Pending* Visits::next_of(const Bench* bench) {
  for (Group& group : groups_) {
    if (group.next == group.cases.size() || group.cases.front().bench != bench) continue;
    --left_;
    return &group.cases[group.next++];
  }
  return nullptr;
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
        visits_(pending_cases(benches, options.pass, document_), options.budget > 0 || options.stop_after > 0) {}

  int measure() {
    std::size_t measured = 0;
    bool skipped = false;
    while (broken_.empty() && !time_is_up()) {
      const Pending* one = visits_.next(skipped);
      if (!one) break;
      skipped = !measure_case(*one);
      ++measured;
    }
    write();
    if (!broken_.empty()) std::printf("the device broke: %s\n", broken_.c_str());
    std::printf("%zu cases measured, %d checks failed, %zu left, %.1f s\n", measured, failed_, visits_.left(),
                seconds_since(start_));
    if (!broken_.empty()) return 4;
    if (failed_ > 0) return 1;
    return visits_.left() > 0 ? 3 : 0;
  }

 private:
  bool time_is_up() const {
    const double spent = seconds_since(start_);
    return (options_.stop_after > 0 && spent > options_.stop_after) || (options_.budget > 0 && spent > options_.budget);
  }
  Limits limits_now() const {
    if (options_.budget <= 0) return options_.limits;
    return share(options_.limits, options_.budget - seconds_since(start_), visits_.left() + 1);
  }

  // Runs on the watchdog's thread, while the main thread hangs.
  [[noreturn]] void give_up_hanging() {
    const char* const what = checking_ ? "its reference check hangs" : "it hangs";
    std::printf("%s [%s]: %s\n", now_->bench->name.c_str(), describe(now_->axes).c_str(), what);
    if (checking_) {
      give_up(*now_, what);
    } else {
      add_skipped(*now_, what);
    }
    write();
    std::printf("%zu left\n", visits_.left());
    std::fflush(stdout);
    std::_Exit(4);
  }

  // The first failure of the benchmark's check, which runs before its first case.
  const std::string& verdict(const Bench& bench) {
    const auto [known, fresh] = verdicts_.try_emplace(bench.name);
    if (!fresh) return known->second;
    checking_ = true;
    known->second = check_bench(bench, options_, program_.machine, options_.quiet);
    checking_ = false;
    watchdog_.begin();
    if (!known->second.empty()) {
      ++failed_;
      std::printf("%s: WRONG %s\n", bench.name.c_str(), known->second.c_str());
      look_at_device();
    }
    return known->second;
  }

  // Returns whether the case was measured.
  bool measure_case(const Pending& p) {
    now_ = &p;
    watchdog_.begin();
    const std::string& wrong = verdict(*p.bench);
    State state(p.axes, p.mode, false, limits_now(), program_.machine);
    if (!wrong.empty()) {
      state.skip("the reference check failed: " + wrong);
    } else if (const std::string thrown = run_case(*p.bench, state); !thrown.empty()) {
      state.skip("failed: " + thrown);
      look_at_device();
    } else if (!state.failures().empty()) {
      ++failed_;
      state.skip("wrong at this size: " + state.failures().front());
      std::printf("%s: WRONG [%s] %s\n", p.bench->name.c_str(), describe(p.axes).c_str(),
                  state.failures().front().c_str());
    }
    watchdog_.end();
    Json row = finish_row(program_, p, options_.pass, state);
    if (!options_.quiet) print_row(p, state);
    // A failed check is not a result: the next run tries again.
    if (wrong.empty() && state.failures().empty()) document_.add(std::move(row));
    if (!wrong.empty() && !broken_.empty()) give_up(p, "the reference check broke the device: " + wrong);
    if (seconds_since(saved_) > 10) write();
    return !state.skipped();
  }
  void add_skipped(const Pending& p, const std::string& why) {
    State state(p.axes, p.mode, false, options_.limits, program_.machine);
    state.skip(why);
    document_.add(finish_row(program_, p, options_.pass, state));
  }
  // A check that broke the device would break it again: its benchmark is abandoned.
  void give_up(const Pending& first, const std::string& why) {
    for (const Pending* p = &first; p; p = visits_.next_of(first.bench)) add_skipped(*p, why);
  }
  void look_at_device() {
    if (program_.broken) broken_ = program_.broken();
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
  Visits visits_;
  int failed_ = 0;
  std::string broken_;
  const Pending* now_ = nullptr;  // running
  bool checking_ = false;         // its benchmark
  std::map<std::string, std::string> verdicts_;
  Clock::time_point start_ = Clock::now(), saved_ = Clock::now();
  Watchdog watchdog_{program_.case_seconds * options_.patience, [this] { give_up_hanging(); }};
};

int refcheck(const Program& program, const Options& options, const std::vector<Bench>& benches) {
  int failed = 0;
  std::size_t checked = 0;
  std::string broken, now;
  Watchdog watchdog(program.case_seconds * options.patience, [&] {
    std::printf("%s: WRONG it hangs\n", now.c_str());
    std::fflush(stdout);
    std::_Exit(4);
  });
  for (const Bench& bench : benches) {
    if (!broken.empty()) break;
    ++checked;
    now = bench.name;
    watchdog.begin();
    const std::string why = check_bench(bench, options, program.machine, options.quiet);
    if (why.empty()) continue;
    ++failed;
    std::printf("%s: WRONG %s\n", bench.name.c_str(), why.c_str());
    if (program.broken) broken = program.broken();
  }
  watchdog.end();
  if (!broken.empty()) std::printf("the device broke: %s\n", broken.c_str());
  std::printf("%zu benchmarks checked, %d wrong, %zu left\n", checked, failed, benches.size() - checked);
  if (!broken.empty()) return 4;
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
