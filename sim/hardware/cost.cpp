#include "hardware/cost.hpp"

#include <array>
#include <cstddef>

namespace kvcast::hardware {
namespace {

struct Entry {
  std::string_view name;
  bool fifo;
};

constexpr std::array<Entry, kResourceCount> kResources = {{{"HBM", false},
                                                           {"tensor cores", false},
                                                           {"vector units", false},
                                                           {"copy engine H2D", true},
                                                           {"copy engine D2H", true},
                                                           {"zero-copy loads", false},
                                                           {"link H2D", false},
                                                           {"link D2H", false},
                                                           {"link both ways", false},
                                                           {"peer link", false},
                                                           {"host DRAM", false},
                                                           {"CPU cores", false},
                                                           {"host thread", true},
                                                           {"recall thread", true},
                                                           {"backup thread", true}}};

}  // namespace

std::string_view resource_name(Resource resource) { return kResources[static_cast<std::size_t>(resource)].name; }

bool is_fifo(Resource resource) { return kResources[static_cast<std::size_t>(resource)].fifo; }

}  // namespace kvcast::hardware
