#include "validate/kernels.hpp"

#include <map>
#include <optional>

#include "config/find.hpp"
#include "graph/traffic.hpp"
#include "hardware/cost_model.hpp"
#include "metrics/errors.hpp"
#include "validate/points.hpp"

namespace kvcast::validate {
namespace {

using nlohmann::json;

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

constexpr double kMicro = 1e6;

Case case_of(const MeasuredPoint& point, const hardware::Cost& cost) {
  Case c;
  c.id = fmt::format("line {}", point.where.line);
  c.group = point.device + "/" + point.framework;
  c.quantity = point.op.kind == graph::Kind::kGemm ? "GEMM" : "decode attention";
  c.unit = "us";
  c.expected = point.seconds * kMicro;
  c.predicted = cost.alone * kMicro;
  c.low = *c.predicted * (1 - std::min(1.0, static_cast<double>(cost.uncertainty)));
  c.high = *c.predicted * (1 + static_cast<double>(cost.uncertainty));
  c.tolerance = cost.uncertainty;
  const graph::Traffic traffic = graph::traffic_of(point.op.work);
  c.size = traffic.hbm_read + traffic.hbm_write;
  c.origin = cost.origin;
  if (cost.extrapolated) c.note = "outside the range that the profile was established for";
  c.verdict = verdict_of(c, false);
  return c;
}

}  // namespace

Suite kernels_of_points(const std::string& path) {
  Suite suite;
  suite.name = "kernels";
  suite.question = "Does the cost model foretell how long single kernels take?";
  suite.size_unit = "bytes moved";
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
    for (Tally* tally : {&all, &own}) {
      tally->errors.push_back(cost.alone / point.seconds - 1);
      tally->outside_range += cost.extrapolated ? 1 : 0;
    }
    suite.cases.push_back(case_of(point, cost));
  }
  suite.detail = all.to_json();
  suite.detail["points"] = path;
  for (const auto& [source, tally] : by_source) suite.detail["by_source"][source] = tally.to_json();
  return suite;
}

}  // namespace kvcast::validate
