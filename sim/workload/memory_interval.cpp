#include "workload/memory_interval.hpp"

#include "lower/dense.hpp"

namespace kvcast::workload {
namespace {

using nlohmann::json;

constexpr double kTelling = 0.05;  // share of a peak from which what is estimated makes all of it an estimate

double temporaries(const result::PoolUse& use) {
  double bytes = 0;
  for (const result::OwnedBytes& o : use.owners) bytes += is_temporary(o.owner) ? o.bytes : 0;
  return bytes;
}

bool estimated(const result::PoolUse& use) { return use.peak > 0 && temporaries(use) >= kTelling * use.peak; }

double peak_when_off(const result::PoolUse& use, double sign) {
  return use.peak + sign * lower::kTemporarySpread * temporaries(use);
}

}  // namespace

double temporaries_when_off(const hardware::Shift& shift) {
  return shift.source == kTemporaries ? 1 + shift.sign * lower::kTemporarySpread : 1;
}

bool is_temporary(const std::string& owner) { return owner == "activations" || owner == "attention scores"; }

void add_memory_intervals(json& record, const Experiment& e) {
  const auto add = [&record](const char* key, const result::PoolUse& use) {
    const double sign = estimated(use) ? 1 : 0;
    record["intervals"][key] = {peak_when_off(use, -sign), peak_when_off(use, sign)};
    record["origin"][key] = origin_name(estimated(use) ? Origin::kAssumed : Origin::kExact);
  };
  add("memory.hbm_peak_bytes", e.hbm);
  add("memory.decode_hbm_peak_bytes", e.decode_hbm);
  record["origin"]["memory"] = "exact";
}

json shifted_memory(const Experiment& e) {
  json entry = {{"source", kTemporaries}};
  for (const auto& [which, sign] : {std::pair("longer", 1.0), std::pair("shorter", -1.0)}) {
    entry[which]["memory"] = {{"hbm_peak_bytes", peak_when_off(e.hbm, sign)},
                              {"decode_hbm_peak_bytes", peak_when_off(e.decode_hbm, sign)}};
  }
  return entry;
}

}  // namespace kvcast::workload
