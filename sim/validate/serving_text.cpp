// The tables of the suite `serving` for a terminal.
#include <fmt/format.h>

#include "base/units.hpp"
#include "validate/serving.hpp"

namespace kvcast::validate {
namespace {

using nlohmann::json;

std::string errors_text(const json& summary) {
  if (summary.is_null()) return fmt::format("{:>6} {:>6}", "-", "-");
  return fmt::format("{:>6.1f} {:>6.1f}", 100 * summary["median"].get<double>(), 100 * summary["p90"].get<double>());
}

std::string campaign_line(const json& line) {
  const json &now = line["now"], &first = line["first"];
  const std::string n = now.is_null() ? "0" : std::to_string(now["n"].get<int>());
  const std::string bias = now.is_null() ? "-" : format_change(100 * now["bias"].get<double>(), 1);
  const std::string then = first.is_null() ? "-" : fmt::format("{:.1f}", 100 * first["median"].get<double>());
  const int intervals = line["intervals"].get<int>(), covered = line["covered"].get<int>();
  const std::string held = intervals == 0 ? "-" : fmt::format("{} of {}", covered, intervals);
  const json& steps = line["batch_steps"];
  const std::string alone = steps.is_null() ? "-" : fmt::format("{:.1f}", 100 * steps["median"].get<double>());
  return fmt::format("{:<16} {:<11} {:<6} {:>5} {:>5} {} {:>7} {} {:>6} {:>7} {:>10}\n",
                     line["campaign"].get<std::string>(), line["kind"].get<std::string>(),
                     line["known"].get<bool>() ? "known" : "blind", n, line["unanswered"].get<int>(), errors_text(now),
                     bias, errors_text(line["batch"]), alone, then, held);
}

std::string trace_line(const json& trace) {
  std::string text = fmt::format("{:<28}", trace["group"].get<std::string>());
  for (const char* const time : {"ttft_ms", "tpot_ms", "e2e_ms"}) {
    for (const char* const statistic : {"mean", "p50", "p90", "p99"}) {
      const json& error = trace["error"][std::string(time) + "." + statistic];
      text += fmt::format(" {:>6}", error.is_null() ? "-" : format_change(100 * error.get<double>(), 1));
    }
  }
  return text + fmt::format(" {:>8}\n", trace.contains("order") ? fmt::format("{:.3f}", trace["order"].get<double>())
                                                                : std::string("-"));
}

}  // namespace

std::string serving_text(const Suite& suite) {
  const json& detail = suite.detail;
  std::string text = fmt::format("\n{:<16} {:<11} {:<6} {:>5} {:>5} {:>6} {:>6} {:>7} {:>6} {:>6} {:>6} {:>7} {:>10}\n",
                                 "campaign", "numbers", "read", "n", "none", "median", "p90", "bias", "batch", "p90",
                                 "steps", "first", "interval");
  if (detail.contains("lines")) {
    for (const json& line : detail["lines"]) text += campaign_line(line);
  }
  text +=
      "median and p90 of |error|, % of the measured number; batch: of the static batch, prompts of others between its "
      "steps included;\nsteps: of its decode steps alone, median; first: of the first complete run, median;\ninterval: "
      "measured numbers within the 80 % interval, of the first, middle and last point of each group\n";
  if (!detail["traces"].empty()) {
    text += fmt::format("\n{:<28} {:>27} {:>27} {:>27} {:>8}\n{:<28}", "replayed traces, error in %", "TTFT", "TPOT",
                        "E2E", "Spearman", "");
    for (int i = 0; i < 3; ++i) text += fmt::format(" {:>6} {:>6} {:>6} {:>6}", "mean", "p50", "p90", "p99");
    text += "\n";
    for (const json& trace : detail["traces"]) text += trace_line(trace);
  }
  for (const json& kv : detail["kv_capacity"]) {
    const double predicted = kv["predicted"].get<double>(), stated = kv["stated"].get<double>();
    text += fmt::format("\ntokens of the cache, {}: {:.0f} predicted, {:.0f} stated ({} %)\n",
                        kv["group"].get<std::string>(), predicted, stated,
                        format_change(100 * (predicted / stated - 1), 1));
  }
  if (detail.contains("pairs")) text += pairs_text(detail["pairs"]);
  for (const auto& [group, why] : detail["unanswered"].items()) {
    text += fmt::format("not predicted, {}: {}\n", group, why.get<std::string>());
  }
  return text;
}

}  // namespace kvcast::validate
