// kvcast validate kernels --points CSV: the cost model beside kernel times that someone measured.
#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/commands.hpp"
#include "app/points.hpp"
#include "config/run.hpp"
#include "hardware/cost_model.hpp"
#include "metrics/errors.hpp"

namespace kvcast::app {
namespace {

using nlohmann::json;

struct Options {
  std::vector<std::string> suites;
  std::string points;
  bool as_json = false;
};

// Errors of one device and framework, or of all.
struct Tally {
  std::vector<double> errors;
  std::int64_t outside_range = 0, no_profile = 0;

  json to_json() const {
    const metrics::ErrorSummary s = metrics::summarise_errors(errors);
    return {{"n", s.n},
            {"median", s.median},
            {"p90", s.p90},
            {"max", s.max},
            {"bias", s.bias},
            {"outside_range", outside_range},
            {"no_profile", no_profile}};
  }
};

// Profiles by "device/framework", looked up once each.
class Profiles {
 public:
  // Null where no profile has that name or alias.
  const hardware::CostModel* find(const std::string& device, const std::string& framework) {
    const std::string name = device + "/" + framework;
    const auto [at, fresh] = models_.try_emplace(name);
    if (fresh) at->second = load(name);
    return at->second ? &*at->second : nullptr;
  }

 private:
  static std::optional<hardware::CostModel> load(const std::string& name) {
    try {
      const std::string path = config::find_config("hardware", name, {});
      // Kernel times are taken in a stream or a graph of their own: what surrounds them is in the measured time.
      return hardware::CostModel(config::read_hardware(path), config::Framework{});
    } catch (const UserError&) {
      return {};
    }
  }
  std::map<std::string, std::optional<hardware::CostModel>> models_;
};

json validate_points(const std::string& path) {
  Profiles profiles;
  Tally all;
  std::map<std::string, Tally> by_source;
  for (const MeasuredPoint& point : read_points(path)) {
    Tally& own = by_source[point.device + "/" + point.framework];
    const hardware::CostModel* model = profiles.find(point.device, point.framework);
    if (model == nullptr) {
      ++all.no_profile, ++own.no_profile;
      continue;
    }
    const hardware::Cost cost = model->cost(point.op);
    const double error = cost.alone / point.seconds - 1;
    for (Tally* tally : {&all, &own}) {
      tally->errors.push_back(error);
      tally->outside_range += cost.extrapolated ? 1 : 0;
    }
  }
  json out = all.to_json();
  out["points"] = path;
  for (const auto& [source, tally] : by_source) out["by_source"][source] = tally.to_json();
  return out;
}

void print_text(const json& result) {
  fmt::print("{:<28} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>10}\n", "device/framework", "points", "median", "p90",
             "max", "bias", "outside", "no profile");
  const auto line = [](const std::string& name, const json& r) {
    const auto percent = [&r](const char* key) { return fmt::format("{:.1f} %", 100 * r[key].get<double>()); };
    fmt::print("{:<28} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>10}\n", name, r["n"].get<std::int64_t>(),
               percent("median"), percent("p90"), percent("max"), percent("bias"),
               r["outside_range"].get<std::int64_t>(), r["no_profile"].get<std::int64_t>());
  };
  for (const auto& [source, r] : result["by_source"].items()) line(source, r);
  line("all", result);
}

int run(const Options& options) {
  for (const std::string& suite : options.suites) {
    if (suite != "kernels") throw UserError({}, fmt::format("unknown suite \"{}\"", suite), {"kernels"});
  }
  if (options.points.empty()) {
    throw UserError(
        "validate kernels: give the measured points with --points CSV; kvcast has measured none of its own yet");
  }
  const json result = validate_points(options.points);
  if (options.as_json) {
    fmt::print("{}\n", result.dump(1));
  } else {
    print_text(result);
  }
  return 0;
}

}  // namespace

void add_validate(CLI::App& app, int& result) {
  CLI::App* command = app.add_subcommand("validate", "predictions beside what was measured, with their errors");
  auto options = std::make_shared<Options>();
  command->add_option("SUITE", options->suites, "kernels (default)");
  command->add_option("--points", options->points, "measured decode-attention or GEMM times (CSV)");
  command->add_flag("--json", options->as_json, "print JSON");
  command->callback([options, &result] { result = run(*options); });
}

}  // namespace kvcast::app
