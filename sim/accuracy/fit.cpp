// Four rounds of golden-section search over one parameter after the other: each moves few cells of the others.
#include "accuracy/fit.hpp"

#include <cmath>
#include <functional>

#include "base/quantile.hpp"
#include "evidence/intervals.hpp"

namespace kvcast::accuracy {
namespace {

struct Range {
  MapParameter RecallMap::*parameter;
  double low, high;
};
constexpr Range kRanges[] = {{&RecallMap::kappa, 0.3, 6},
                             {&RecallMap::places, 0.02, 5},
                             {&RecallMap::astray, 0, 1},
                             {&RecallMap::writers, 1, 60}};
static_assert(std::size(kRanges) == kFittedParameters);
constexpr double kGolden = 0.6180339887498949;

double golden(const std::function<double(double)>& f, double low, double high) {
  double a = high - kGolden * (high - low), b = low + kGolden * (high - low);
  double fa = f(a), fb = f(b);
  for (int i = 0; i < 24; ++i) {
    if (fa <= fb) {
      high = b, b = a, fb = fa, a = high - kGolden * (high - low), fa = f(a);
    } else {
      low = a, a = b, fa = fb, b = low + kGolden * (high - low), fb = f(b);
    }
  }
  return fa <= fb ? a : b;
}

class Fit {
 public:
  Fit(const std::vector<Cell>& cells, const std::vector<CellSamples>& replays) : cells_(cells), replays_(replays) {}

  RecallMap run() {
    RecallMap link;
    const std::vector<std::size_t> cells = all();
    for (int round = 0; round < 4; ++round) {
      for (const Range& r : kRanges) {
        (link.*r.parameter).value =
            golden([&](double x) { return error_with(link, r.parameter, x, cells); }, r.low, r.high);
      }
    }
    for (const Range& r : kRanges) {
      MapParameter& p = link.*r.parameter;
      const std::vector<std::size_t> moved = moved_by(link, r);
      const auto error_at = [&](double value) { return error_with(link, r.parameter, value, moved); };
      const double least = error_at(p.value);
      const auto bound = [&](double end) {
        double inside = p.value, outside = end;
        if (error_at(end) <= 1.05 * least) return end;
        for (int i = 0; i < 20; ++i) {
          const double middle = (inside + outside) / 2;
          (error_at(middle) <= 1.05 * least ? inside : outside) = middle;
        }
        return inside;
      };
      p.low = bound(r.low);
      p.high = bound(r.high);
    }
    residuals(link);
    return link;
  }

 private:
  static double share(const RecallMap& link, const Cell& cell, const CellSamples& replays) {
    return share_of_full(link, parts_of(cell.task, cell.each_turn), replays);
  }

  std::vector<std::size_t> all() const {
    std::vector<std::size_t> indices;
    for (std::size_t i = 0; i < cells_.size(); ++i) {
      if (!replays_[i].empty()) indices.push_back(i);
    }
    return indices;
  }

  // The cells that a parameter can move by a tenth of their full score: only these determine it.
  std::vector<std::size_t> moved_by(RecallMap link, const Range& r) const {
    std::vector<std::size_t> moved;
    for (const std::size_t i : all()) {
      (link.*r.parameter).value = r.low;
      const double low = share(link, cells_[i], replays_[i]);
      (link.*r.parameter).value = r.high;
      if (std::fabs(share(link, cells_[i], replays_[i]) - low) >= 0.1) moved.push_back(i);
    }
    return moved;
  }

  double error_with(RecallMap link, MapParameter RecallMap::*parameter, double value,
                    const std::vector<std::size_t>& over) const {
    (link.*parameter).value = value;
    double sum = 0;
    for (const std::size_t i : over) {
      sum += std::fabs(cells_[i].full * share(link, cells_[i], replays_[i]) - cells_[i].row.value);
    }
    return sum;
  }

  void residuals(RecallMap& link) const {
    std::vector<double> low, middle, high;
    for (std::size_t i = 0; i < cells_.size(); ++i) {
      if (replays_[i].empty()) continue;
      const double s = share(link, cells_[i], replays_[i]);
      std::vector<double>& bin = s < 0.1 ? low : s <= 0.9 ? middle : high;
      bin.push_back(std::fabs(cells_[i].full * s - cells_[i].row.value));
    }
    const auto width = [](const std::vector<double>& bin) { return bin.empty() ? 10.0 : quantile(bin, 0.8); };
    link.residual_low = width(low);
    link.residual_middle = width(middle);
    link.residual_high = width(high);
  }

  const std::vector<Cell>& cells_;
  const std::vector<CellSamples>& replays_;
};

}  // namespace

std::optional<double> fit_common(const std::vector<Average>& averages) {
  std::vector<double> needed;
  for (const Average& a : averages) {
    if (!a.refused.empty() || a.parts.size() < 2) continue;
    const double error = a.row.value - a.predicted;
    const double width = error > 0 ? a.high - a.predicted : a.predicted - a.low;
    needed.push_back(evidence::common_needed(std::abs(error), width, a.parts.size()));
  }
  if (needed.empty()) return {};
  return quantile(needed, 0.8);
}

RecallMap fit_link(const std::vector<Cell>& cells, const std::vector<CellSamples>& replays) {
  return Fit(cells, replays).run();
}

}  // namespace kvcast::accuracy
