#include "base/error.hpp"
#include "serving/scheduler.hpp"

namespace kvcast::serving {

std::unique_ptr<Scheduler> make_sglang(State&) { throw UserError("sglang is not modelled yet"); }

}  // namespace kvcast::serving
