#include "base/error.hpp"
#include "serving/scheduler.hpp"

namespace kvcast::serving {

std::unique_ptr<Scheduler> make_static_batch(State&) { throw UserError("static_batch is not modelled yet"); }

}  // namespace kvcast::serving
