// The parts of a report that only runs with traffic have: their load and state, what happened over time, distributions
// of times, and capacities.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "report/table.hpp"
#include "result/result.hpp"

namespace kvcast::report {

// A load passes if this share of the requests is within the SLO and the queue does not grow.
inline constexpr double kPassingShare = 0.99;

// The load that a sweep raises until the service no longer copes.
struct LoadAxis {
  double value = 0;
  std::string unit;  // "requests/s"
};
// Nothing for a batch, or if all requests arrive at once.
std::optional<LoadAxis> load_of(const result::Subject& subject);
bool serves(const result::Subject& subject);

// Sets the columns of a service in the row begun last: load, load_unit, state ("stable", "saturated", "undecided"),
// slo_ttft, slo_tpot, slo_e2e (seconds).
void set_service(Table& experiments, const result::Result& result);

class ServiceTables {
 public:
  // A load of a line, and whether the service copes with it: the capacity of the line follows from its points.
  struct Point {
    double id = 0, load = 0;
    bool passes = false;
    std::string unit;
  };
  // Adds the run to the tables. Returns its point; none of a batch, or of a run without bounds.
  std::optional<Point> add(double id, const result::Result& result);
  // `line`: what a capacity is of, other than model, machine and prompt length: series and budget.
  void add(const Point& point, const std::string& line, const result::Subject& subject);
  void add(double id, const std::string& line, const result::Result& result);

  Table moments;  // id, at, running, waiting, used, preemptions: a run over time
  Table curves;   // id, share, ttft, tpot: quantiles
  // One row per line: id (of an experiment of it), most (the largest load that passes), fails (the next larger one that
  // does not), least and top (of all loads), load_unit. A missing `most`: none passes; a missing `fails`: all larger
  // ones do.
  Table capacities() const;

 private:
  using Place = std::tuple<std::string, std::string, std::int64_t, std::string>;  // model, machine, prompt, line
  std::vector<Place> order_;
  std::map<Place, std::vector<Point>> lines_;
  std::size_t embedded_ = 0;
};

}  // namespace kvcast::report
