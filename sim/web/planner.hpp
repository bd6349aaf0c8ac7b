// The planner's API: runs, sweeps and plans as a configuration states them, simulated while the client waits.
//
//   POST /api/run     a run           → the JSON of `kvcast run --json`
//   POST /api/sweep   a sweep         → lines {index, swept, result}, in order of completion, the result being that
//                                       JSON; {index, nearest} for those that do not fit, a sentence on what would;
//                                       {done: experiments}
//   POST /api/plan    a run with plan → lines {index, answer, spec}, the answer as `kvcast plan --json` prints it and
//                                       `spec` a Vega specification or null; {done: answers}
//
// The body is YAML or JSON; ?timeline=1 of a run, or the number of a sweep's point, keeps the spans of a decode step.
// Other lines are {progress: {what, done, of}} and, as the last one, {error}. Errors that the user can correct are
// answered with 400 and {error}: "request:3:5: unknown key ...". Only names under configs/ are accepted, no files. What
// a request would take is estimated before it is begun.
#pragma once

#include <memory>

#include "api/session.hpp"
#include "web/http.hpp"

namespace kvcast::web {

// Answers a request; a Handler. The session limits what it may take.
void answer(api::Session& session, const HttpRequest& request, Reply& reply);

}  // namespace kvcast::web
