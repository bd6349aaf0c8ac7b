// One parameter after the other by golden-section search, until nothing moves: each moves few cells of the others.
#include "accuracy/fit.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/quantile.hpp"

namespace kvcast::accuracy {
namespace {

struct Range {
  Parameter Link::*parameter;
  double low, high;
};
constexpr Range kRanges[] = {{&Link::kappa, 0.3, 6}, {&Link::places, 0.02, 5}, {&Link::fluency, 0, 8}};
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
  Fit(const std::vector<Cell>& cells, const std::vector<Replays>& replays) : cells_(cells), replays_(replays) {}

  Link run() {
    Link link;
    for (int round = 0; round < 4; ++round) {
      for (const Range& r : kRanges) {
        (link.*r.parameter).value = golden([&](double x) { return error_with(link, r.parameter, x); }, r.low, r.high);
      }
    }
    const double least = error(link);
    for (const Range& r : kRanges) {
      Parameter& p = link.*r.parameter;
      const auto bound = [&](double end) {
        double inside = p.value, outside = end;
        if (error_with(link, r.parameter, end) <= 1.05 * least) return end;
        for (int i = 0; i < 20; ++i) {
          const double middle = (inside + outside) / 2;
          (error_with(link, r.parameter, middle) <= 1.05 * least ? inside : outside) = middle;
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
  static double share(const Link& link, const Cell& cell, const Replays& replays) {
    return share_of_full(link, parts_of(cell.task, cell.each_turn), replays);
  }

  double error(const Link& link) const {
    double sum = 0;
    for (std::size_t i = 0; i < cells_.size(); ++i) {
      if (replays_[i].empty()) continue;
      sum += std::fabs(cells_[i].full * share(link, cells_[i], replays_[i]) - cells_[i].row.value);
    }
    return sum;
  }

  double error_with(Link link, Parameter Link::*parameter, double value) const {
    (link.*parameter).value = value;
    return error(link);
  }

  void residuals(Link& link) const {
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
  const std::vector<Replays>& replays_;
};

}  // namespace

Link fit_link(const std::vector<Cell>& cells, const std::vector<Replays>& replays) { return Fit(cells, replays).run(); }

}  // namespace kvcast::accuracy
