// The parts of an op's cost while it is being worked out, and their sum.
#pragma once

#include <boost/container/small_vector.hpp>

#include <string>

#include "hardware/cost.hpp"
#include "hardware/number.hpp"

namespace kvcast::hardware {

// One part: a time that the op waits (its share of the latency), that it works on a resource, or that its issuing
// takes.
struct Term {
  enum class Role { kWait, kWork, kIssue };
  const char* what = "";  // static text: "weights and activations"
  Role role = Role::kWait;
  Resource resource = Resource::kHbm;  // of work and issue
  Number seconds;                      // alone
};

// Numbers of one source are off together: all times that rest on it, each by its own uncertainty.
struct Shift {
  std::string source;  // as profiles write it; empty: nothing is off
  double sign = 0;     // 1 longer, -1 shorter
};

class Terms {
 public:
  void wait(const char* what, const Number& seconds);
  // Work of `seconds` alone; several on one resource add up. Work of 0 seconds is none.
  void work(const char* what, Resource resource, const Number& seconds);
  // Issuing of a copy, see Issue.
  void issue(const char* what, Resource thread, const Number& first, double rest);
  // The waits and works of others, each `factor` times as long; they hold no issuing.
  void add(const Terms& others, double factor);

  // Seconds by role; of works on several resources the longest.
  struct Times {
    double waits = 0, work = 0;
    double issue_first = 0, issue_rest = 0;
  };
  // With the parts that rest on this source (a Number::source, compared as text) longer (sign 1) or shorter (-1) by
  // their uncertainty, to a tenth at the least. No source: as they are.
  Times times(const std::string* source = nullptr, double sign = 0) const;

  // Parts that rest on the source of a shift take longer by their uncertainty, or shorter; to a tenth at the least.
  void shift(const Shift& shift);

  double alone() const;  // seconds

  // rates: units a second by resource.
  Cost cost(const double* rates) const;
  const boost::container::small_vector<Term, 8>& parts() const { return parts_; }

 private:
  boost::container::small_vector<Term, 8> parts_;
  std::optional<Issue> issue_;
};

}  // namespace kvcast::hardware
