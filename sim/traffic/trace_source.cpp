#include "traffic/trace_source.hpp"

#include <algorithm>

#include "traffic/draws.hpp"

namespace kvcast::traffic {

bool read_request(TraceRows& rows, TraceRow& row) {
  do {
    if (!rows.read(row)) return false;
  } while (row.prompt_tokens == 0 || row.output_tokens == 0);
  return true;
}

TraceSource::TraceSource(const config::Traffic& traffic)

    : rows_(open_trace(traffic)),
      traffic_(traffic),
      requests_(traffic.requests),
      speedup_(traffic.speedup),
      slots_(rows_->concurrency()) {
  fill();
  if (window_.empty()) throw UserError({traffic.file, 0, 0}, "the trace has no requests");
  origin_ = rows_->from_zero() ? 0 : window_.begin()->first;
}

void TraceSource::fill() {
  while (!read_all_ && window_.size() < rows_->window()) {
    TraceRow row;
    read_all_ = !read_request(*rows_, row);
    if (read_all_) return;
    if (last_ && row.seconds < *last_) {
      throw UserError(row.where, fmt::format("the request arrives {:.6g} s before one of an earlier row; sort the "
                                             "trace by its arrivals",
                                             *last_ - row.seconds));
    }
    window_.emplace(row.seconds, std::move(row));
  }
}

Picoseconds TraceSource::next() {
  if (window_.empty() || taken_ == requests_) return kNever;
  const double seconds = (window_.begin()->first - *origin_) / speedup_;
  const Picoseconds arrival = later(0, seconds);
  if (arrival == later(arrival, 1)) {
    throw UserError(window_.begin()->second.where,
                    fmt::format("the request arrives {:.4g} days after the first one, later than simulated time ends; "
                                "set a speedup",
                                seconds / 86400));
  }
  return std::max(arrival, slots_.free_from());
}

Request TraceSource::take() {
  Request request;
  request.arrival = next();
  KVCAST_CHECK(request.arrival != kNever);
  TraceRow& row = window_.begin()->second;
  request.id = taken_++;
  request.prompt_tokens = row.prompt_tokens, request.output_tokens = scaled_outputs(traffic_, row.output_tokens);
  request.content = std::move(row.content);
  request.answer_key = row.answer_key, request.session = row.session, request.turn = row.turn;
  last_ = row.seconds;
  window_.erase(window_.begin());
  slots_.take();
  if (taken_ < requests_) fill();
  return request;
}

void TraceSource::ended(const Request&, Picoseconds now) { slots_.give(now); }

}  // namespace kvcast::traffic
