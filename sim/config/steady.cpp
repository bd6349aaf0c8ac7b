#include "config/steady.hpp"

namespace kvcast::config {
namespace {

FoundFiles*& found_by_thread() {
  thread_local FoundFiles* found = nullptr;
  return found;
}

}  // namespace

SteadyFiles::SteadyFiles() : before_(found_by_thread()) { found_by_thread() = &found_; }
SteadyFiles::~SteadyFiles() { found_by_thread() = before_; }
FoundFiles* SteadyFiles::found() { return found_by_thread(); }

}  // namespace kvcast::config
