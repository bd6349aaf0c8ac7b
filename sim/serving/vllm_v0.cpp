#include "base/error.hpp"
#include "serving/scheduler.hpp"

namespace kvcast::serving {

std::unique_ptr<Scheduler> make_vllm_v0(State&) { throw UserError("vllm_v0 is not modelled yet"); }

}  // namespace kvcast::serving
