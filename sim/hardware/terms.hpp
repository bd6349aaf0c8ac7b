// The parts of an op's cost while it is computed, and their sum.
#pragma once

#include <boost/container/small_vector.hpp>

#include <string>

#include "hardware/cost.hpp"
#include "hardware/number.hpp"

namespace kvcast::hardware {

// One part: a time that the op waits (its share of the latency), works on a resource, or takes for its issuing.
struct Term {
  enum class Role { kWait, kWork, kIssue };
  const char* what = "";  // static text: "weights and activations"
  Role role = Role::kWait;
  Resource resource = Resource::kHbm;  // of work and issue
  Number seconds;                      // alone
};

// Numbers of one source err together: every time that is based on it shifts by its own uncertainty.
struct Shift {
  std::string source;  // as profiles write it; empty: no shift
  double sign = 0;     // 1 longer, -1 shorter
};

class Terms {
 public:
  void wait(const char* what, const Number& seconds);
  // Work that takes `seconds` alone; several on one resource add up. Work of 0 seconds is not added.
  void work(const char* what, Resource resource, const Number& seconds);
  // Issuing of a copy; see Issue.
  void issue(const char* what, Resource thread, const Number& first, double rest);
  // Adds the waits and works of others, each `factor` times as long; they contain no issuing.
  void add(const Terms& others, double factor);

  // Seconds by role; for works on several resources the longest.
  struct Times {
    double waits = 0, work = 0;
    double issue_first = 0, issue_rest = 0;
  };
  // Parts based on this source (a Number::source, compared as text) are longer (sign 1) or shorter (-1) by their
  // uncertainty, down to a tenth. Without a source no part changes.
  Times times(const std::string* source = nullptr, double sign = 0) const;

  // Makes parts based on the shift's source longer by their uncertainty, or shorter, down to a tenth.
  void shift(const Shift& shift);

  double alone() const;  // seconds

  // `rates`: units per second by resource.
  Cost cost(const double* rates) const;
  const boost::container::small_vector<Term, 8>& parts() const { return parts_; }

 private:
  boost::container::small_vector<Term, 8> parts_;
  std::optional<Issue> issue_;
};

}  // namespace kvcast::hardware
