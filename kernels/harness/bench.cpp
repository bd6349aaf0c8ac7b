#include "harness/bench.hpp"

#include <cmath>
#include <cstdio>

namespace kvcast::kernels {

namespace {

std::string short_number(double x) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.3g", x);
  return buffer;
}

constexpr double kMostOfOne = 10;  // multiples of the tolerance allowed for a single element

// Clocks of memory and links are not exact, and timers have ticks.
constexpr double kPeakAllowance = 1.02;

// Peak of the link, as stated: a virtual machine may state another generation than there is.
double link_peak_of(const State& state) {
  switch (state.resource()) {
    case Resource::kH2d:
    case Resource::kD2h:
      return state.machine().link_peak;
    case Resource::kBoth:
      return 2 * state.machine().link_peak;
    default:
      return 0;
  }
}

}  // namespace

const char* mode_name(Mode mode) { return mode == Mode::kCold ? "cold" : "batch"; }

const char* resource_name(Resource resource) {
  static constexpr const char* kNames[] = {"none", "hbm", "h2d", "d2h", "both", "dram", "cache"};
  return kNames[static_cast<int>(resource)];
}

std::int64_t State::integer(const std::string& axis) const {
  std::int64_t value = 0;
  if (!whole_number(word(axis), value)) {
    throw UsageError("axis '" + axis + "' takes whole numbers, found '" + word(axis) + "'");
  }
  if (value < 0) throw UsageError("axis '" + axis + "' takes numbers from 0 up, found '" + word(axis) + "'");
  return value;
}

const std::string& State::word(const std::string& axis) const {
  for (const auto& [name, value] : axes_) {
    if (name == axis) return value;
  }
  throw std::logic_error("the benchmark reads axis '" + axis + "', which it does not declare");
}

void State::moves(double bytes, Resource resource, double distinct) {
  work_["bytes"] = bytes;
  resource_ = resource;
  distinct_ = distinct > 0 ? distinct : bytes;
  if (distinct > 0) work_["distinct_bytes"] = distinct;
}
void State::work(const std::string& name, double amount) { work_[name] = amount; }
void State::note(const std::string& name, Json value) { notes_[name] = std::move(value); }

double State::work_of(const std::string& name) const {
  const Json* amount = work_.find(name);
  return amount ? amount->number() : 0;
}

void State::compare(const std::string& what, const std::vector<float>& got, const std::vector<float>& expected,
                    double tolerance) {
  ++comparisons_;
  if (got.size() != expected.size() || expected.empty()) {
    failures_.push_back(what + ": " + std::to_string(got.size()) + " numbers, expected " +
                        std::to_string(expected.size()));
    return;
  }
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i])) {
      failures_.push_back(what + ": element " + std::to_string(i) + " is not finite");
      return;
    }
    const double d = double{got[i]} - double{expected[i]};
    difference += d * d;
    norm += double{expected[i]} * double{expected[i]};
  }
  const double error = std::sqrt(difference) / std::max(std::sqrt(norm), 1e-30);
  if (!(error <= tolerance)) {
    failures_.push_back(what + ": relative error " + short_number(error) + " exceeds " + short_number(tolerance));
    return;
  }
  // A single wrong element among many hardly moves the norm.
  const double usual = std::sqrt(norm / static_cast<double>(got.size()));
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double size = std::max({usual, std::abs(double{expected[i]}), 1e-30});
    if (std::abs(double{got[i]} - double{expected[i]}) <= kMostOfOne * tolerance * size) continue;
    failures_.push_back(what + ": element " + std::to_string(i) + " is " + short_number(double{got[i]}) +
                        ", expected " + short_number(double{expected[i]}));
    return;
  }
}

void State::require(bool holds, const std::string& what) {
  ++comparisons_;
  if (!holds) failures_.push_back(what);
}

void State::record(const Sampler& sampler) {
  samples_ = static_cast<int>(sampler.samples().size());
  stop_ = Json(stop_name(sampler.why()));
  recorded_ = samples_ > 0;
  if (!recorded_) return;
  const Summary s = summarize(sampler.samples());
  time_ = Json::object();
  time_["min"] = s.min;
  time_["q1"] = s.q1;
  time_["median"] = s.median;
  time_["q3"] = s.q3;
  time_["max"] = s.max;
  time_["mean"] = s.mean;
  noise_ = s.noise;
  median_ = s.median;
}

Json State::row() const {
  Json row = Json::object();
  Json& axes = row["axes"] = Json::object();
  for (const auto& [name, value] : axes_) {
    std::int64_t number = 0;
    axes[name] = whole_number(value, number) ? Json(number) : Json(value);
  }
  row["mode"] = mode_name(mode_);
  row["work"] = work_;
  row["resource"] = resource_name(resource_);
  row["n"] = samples_;
  row["time_s"] = time_;
  row["noise"] = recorded_ ? Json(noise_) : Json();
  row["stop_reason"] = stop_;
  row["skip_reason"] = skipped() ? Json(skip_reason_) : Json();
  const double bytes = work_of("bytes");
  const double flops = work_of("flops");
  row["gbps"] = recorded_ && bytes > 0 ? Json(bytes / median_ * 1e-9) : Json();
  row["gflops"] = recorded_ && flops > 0 ? Json(flops / median_ * 1e-9) : Json();
  row["notes"] = notes_;
  return row;
}

std::string implausible(const State& state) {
  if (!state.recorded() || state.median() <= 0) return "";
  const double rate = state.distinct_bytes() / state.median();
  const double peak = state.machine().hbm_peak;
  // In batches a cache may serve bytes that count as memory traffic.
  const bool from_memory = state.mode() == Mode::kCold && state.resource() == Resource::kHbm;
  if (peak > 0 && from_memory && rate > kPeakAllowance * peak) {
    return "implausible: " + short_number(rate * 1e-9) + " GB/s, peak " + short_number(peak * 1e-9);
  }
  const double flops = state.work_of("flops") / state.median();
  if (state.machine().tensor_peak > 0 && flops > kPeakAllowance * state.machine().tensor_peak) {
    return "implausible: " + short_number(flops * 1e-12) + " TFLOP/s, peak " +
           short_number(state.machine().tensor_peak * 1e-12);
  }
  return "";
}

double above_stated_link(const State& state) {
  const double peak = link_peak_of(state), rate = state.recorded() ? state.distinct_bytes() / state.median() : 0;
  return peak > 0 && rate > kPeakAllowance * peak ? rate / peak : 0;
}

}  // namespace kvcast::kernels
