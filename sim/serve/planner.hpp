// What the planner's page asks for: runs, sweeps and plans as a configuration states them, simulated while it waits.
//
//   POST /api/run     a run           → the JSON of `kvcast run --json`
//   POST /api/sweep   a sweep         → lines {index, swept, result}, in the order in which they are finished, the
//   result
//                                       being that JSON; {done: experiments}
//   POST /api/plan    a run with plan → lines {index, answer, spec}, the answer as `kvcast plan --json` prints it and
//                                       `spec` a Vega specification or null; {done: answers}
//
// The body is YAML or JSON; ?timeline=1 of a run, or the number of a sweep's point, keeps the spans of a decode step.
// Other lines are {progress: {what, done, of}} and, as the last one, {error}. What a user can mend is answered with 400
// and {error}: "request:3:5: unknown key ...". Files cannot be named, only what is known under configs/.
#pragma once

#include <memory>

#include "report/assets.hpp"
#include "serve/http.hpp"

namespace kvcast::serve {

class Planner {
 public:
  // Simulates on so many threads for each request. The assets must outlive it.
  Planner(int threads, const report::Assets& assets);
  ~Planner();

  // A Handler.
  void answer(const Request& request, Reply& reply);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcast::serve
