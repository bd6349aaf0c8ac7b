#include "base/error.hpp"
#include "serving/scheduler.hpp"

namespace kvcast::serving {

std::unique_ptr<Scheduler> make_trtllm(State&) { throw UserError("trtllm is not modelled yet"); }

}  // namespace kvcast::serving
