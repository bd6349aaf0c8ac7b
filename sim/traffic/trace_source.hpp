// The requests of a trace.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "traffic/request.hpp"
#include "traffic/slots.hpp"
#include "traffic/trace.hpp"

namespace kvcast::traffic {

// Reads the next row that is a request: one with a prompt and an answer.
bool read_request(TraceRows& rows, TraceRow& row);

class TraceSource final : public RequestSource {
 public:
  // Throws UserError for a trace without requests; next() and take() for malformed rows, and for one that arrives
  // before an earlier row.
  explicit TraceSource(const config::Traffic& traffic);

  Picoseconds next() override;
  Request take() override;
  bool open() const override { return rows_->concurrency() == 0; }
  void ended(const Request& request, Picoseconds now) override;

 private:
  void fill();

  std::unique_ptr<TraceRows> rows_;
  config::Traffic traffic_;
  std::int64_t requests_;
  double speedup_;
  Slots slots_;
  std::multimap<double, TraceRow> window_;  // rows read ahead, by their time
  bool read_all_ = false;
  std::optional<double> origin_, last_;  // time of the first row, and of the row taken last
  std::int64_t taken_ = 0;
};

}  // namespace kvcast::traffic
