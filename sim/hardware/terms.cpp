// An op alone takes issue->first + its waits + its longest work: demands are served in proportion, so the largest one
// in seconds is the bottleneck (roofline: Williams, Waterman, Patterson, CACM 52(4), 2009). Uncertainties of these
// parts are independent and add in quadrature in seconds, except for those of one fit, which add linearly.

#include "hardware/terms.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace kvcast::hardware {
namespace {

// Parts shorter than this share of the whole do not affect its origin: an assumed launch gap does not make a long
// kernel assumed.
constexpr double kTelling = 0.05;

const Term* longest_work(const boost::container::small_vector<Term, 8>& parts) {
  const Term* longest = nullptr;
  for (const Term& part : parts) {
    if (part.role != Term::Role::kWork) continue;
    if (longest == nullptr || part.seconds.value > longest->seconds.value) longest = &part;
  }
  return longest;
}

bool counts(const Term& part, const Term* longest) { return part.role != Term::Role::kWork || &part == longest; }

// Square of the seconds by which the parts from this part's fit err together; 0 if an earlier part already includes it.
double square_of_fit(const boost::container::small_vector<Term, 8>& parts, const Term& part, const Term* longest) {
  double half_width = part.seconds.value * part.seconds.uncertainty;
  for (const Term& other : parts) {
    if (&other == &part || !counts(other, longest) || !same_fit(other.seconds, part.seconds)) continue;
    if (&other < &part) return 0;
    half_width += other.seconds.value * other.seconds.uncertainty;
  }
  return half_width * half_width;
}

}  // namespace

void Terms::wait(const char* what, const Number& seconds) {
  if (seconds.value > 0) parts_.push_back({what, Term::Role::kWait, Resource::kHbm, seconds});
}

void Terms::work(const char* what, Resource resource, const Number& seconds) {
  if (seconds.value <= 0) return;
  for (Term& part : parts_) {
    if (part.role != Term::Role::kWork || part.resource != resource) continue;
    const double sum = part.seconds.value + seconds.value;
    const double own = part.seconds.value * part.seconds.uncertainty, other = seconds.value * seconds.uncertainty;
    const bool new_is_larger = seconds.value > part.seconds.value;
    const double half_width = same_fit(part.seconds, seconds) ? own + other : std::sqrt(own * own + other * other);
    part.seconds = {sum,
                    worse(part.seconds.origin, seconds.origin),
                    half_width / sum,
                    part.seconds.extrapolated || seconds.extrapolated,
                    new_is_larger ? seconds.source : part.seconds.source,
                    new_is_larger ? seconds.over_rate : part.seconds.over_rate};
    if (new_is_larger) part.what = what;
    return;
  }
  parts_.push_back({what, Term::Role::kWork, resource, seconds});
}

void Terms::issue(const char* what, Resource thread, const Number& first, double rest) {
  if (first.value <= 0) return;
  parts_.push_back({what, Term::Role::kIssue, thread, first});
  issue_ = Issue{thread, first.value, rest};
}

void Terms::add(const Terms& others, double factor) {
  for (const Term& part : others.parts_) {
    KVCAST_CHECK(part.role != Term::Role::kIssue);
    if (part.role == Term::Role::kWait) wait(part.what, part.seconds * factor);
    if (part.role == Term::Role::kWork) work(part.what, part.resource, part.seconds * factor);
  }
}

void Terms::shift(const Shift& shift) {
  for (Term& part : parts_) {
    if (part.seconds.source == nullptr || *part.seconds.source != shift.source) continue;
    const double factor = factor_at_uncertainty(part.seconds, shift.sign);
    part.seconds.value *= factor;
    if (part.role == Term::Role::kIssue) issue_->first *= factor, issue_->rest *= factor;
  }
}

Terms::Times Terms::times(const std::string* source, double sign) const {
  Times times;
  for (const Term& part : parts_) {
    const bool moves = source != nullptr && part.seconds.source != nullptr &&
                       (part.seconds.source == source || *part.seconds.source == *source);
    const double factor = moves ? factor_at_uncertainty(part.seconds, sign) : 1;
    const double seconds = part.seconds.value * factor;
    if (part.role == Term::Role::kWait) times.waits += seconds;
    if (part.role == Term::Role::kWork) times.work = std::max(times.work, seconds);
    if (part.role == Term::Role::kIssue) times.issue_first = seconds, times.issue_rest = issue_->rest * factor;
  }
  return times;
}

double Terms::alone() const {
  const Term* longest = longest_work(parts_);
  double seconds = longest == nullptr ? 0 : longest->seconds.value;
  for (const Term& part : parts_) {
    if (part.role != Term::Role::kWork) seconds += part.seconds.value;
  }
  return seconds;
}

Cost Terms::cost(const double* rates) const {
  Cost cost;
  cost.issue = issue_;
  const Term* longest = longest_work(parts_);
  double latency = 0, waiting = 0;
  for (const Term& part : parts_) {
    if (part.role == Term::Role::kWork) {
      cost.demands.push_back({part.resource, part.seconds.value * rates[static_cast<std::size_t>(part.resource)]});
    } else {
      waiting += part.seconds.value;
      if (part.role == Term::Role::kWait) latency += part.seconds.value;
    }
  }
  cost.latency = to_picos(latency);
  cost.alone = waiting + (longest == nullptr ? 0 : longest->seconds.value);
  if (longest != nullptr && longest->seconds.value >= waiting) cost.bound = longest->resource;
  double squares = 0;
  for (const Term& part : parts_) {
    if (!counts(part, longest)) continue;
    squares += square_of_fit(parts_, part, longest);
    if (part.seconds.value < kTelling * cost.alone) continue;
    cost.origin = worse(cost.origin, part.seconds.origin);
    cost.extrapolated = cost.extrapolated || part.seconds.extrapolated;
  }
  if (cost.alone > 0) cost.uncertainty = static_cast<float>(std::sqrt(squares) / cost.alone);
  return cost;
}

}  // namespace kvcast::hardware
