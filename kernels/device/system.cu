#include "device/system.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "device/async.hpp"
#include "device/runtime.hpp"

namespace kvcast::kernels {

namespace {

int attribute(cudaDeviceAttr which) {
  int value = 0;
  KVCAST_CUDA(cudaDeviceGetAttribute(&value, which, 0));
  return value;
}

// Dense fp16 with fp32 accumulation, from NVIDIA's data sheets. A name may be part of a longer one: longer ones first.
double tensor_peak(const std::string& name) {
  static const std::pair<const char*, double> kPeaks[] = {
      {"H200 NVL", 836e12},    {"H200", 989e12},         {"H100 PCIe", 756e12},  {"H100 NVL", 836e12},
      {"H100", 989e12},        {"GB200", 2500e12},       {"B200", 2250e12},      {"A100", 312e12},
      {"L40S", 362e12},        {"RTX PRO 6000", 504e12}, {"RTX 4090", 165.2e12}, {"RTX 3090", 71.2e12},
      {"RTX A6000", 154.8e12}, {"RTX 5090", 209.5e12}};
  for (const auto& [part, peak] : kPeaks) {
    if (name.find(part) != std::string::npos) return peak;
  }
  return 0;
}

// NVML is part of the driver; loaded by name so that the program also builds and starts without it.
class Nvml {
 public:
  Nvml() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW)) {
    if (!library_) return;
    const auto init = find<int (*)()>("nvmlInit_v2");
    const auto by_bus = find<int (*)(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
    char bus[32] = "";
    if (!init || !by_bus || init() != 0) return;
    if (cudaDeviceGetPCIBusId(bus, sizeof bus, 0) != cudaSuccess || by_bus(bus, &device_) != 0) device_ = nullptr;
  }
  ~Nvml() {
    if (library_) dlclose(library_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Returns 0 if it is not known.
  unsigned number(const char* function) const {
    unsigned value = 0;
    const auto call = device_ ? find<int (*)(void*, unsigned*)>(function) : nullptr;
    return call && call(device_, &value) == 0 ? value : 0;
  }
  unsigned clock(const char* function, int kind) const {
    unsigned value = 0;
    const auto call = device_ ? find<int (*)(void*, int, unsigned*)>(function) : nullptr;
    return call && call(device_, kind, &value) == 0 ? value : 0;
  }
  std::string driver() const {
    char text[96] = "";
    const auto call = device_ ? find<int (*)(char*, unsigned)>("nvmlSystemGetDriverVersion") : nullptr;
    return call && call(text, sizeof text) == 0 ? text : "";
  }

 private:
  template <typename F>
  F find(const char* name) const {
    return library_ ? reinterpret_cast<F>(dlsym(library_, name)) : nullptr;
  }
  void* library_;
  void* device_ = nullptr;
};

// Bytes per second of one direction, by generation; line coding taken off.
double link_bandwidth(unsigned generation, unsigned lanes) {
  static constexpr double kPerLane[] = {0, 0.25e9, 0.5e9, 0.985e9, 1.969e9, 3.938e9, 7.563e9};
  return generation < 7 ? kPerLane[generation] * lanes : 0;
}

struct Link {
  unsigned generation = 0, lanes = 0;
};

// An idle link takes a while to reach full speed: the best value seen while copies keep it busy.
Link measure_link(const Nvml& nvml) {
  const PinnedMemory host(64 << 20);
  const DeviceArray<unsigned char> device(host.size());
  Stream stream;
  Link best;
  for (int i = 0; i < 16; ++i) {
    stream.copy(device.data(), host.host<void>(), host.size());
    const Link now{nvml.number("nvmlDeviceGetCurrPcieLinkGeneration"), nvml.number("nvmlDeviceGetCurrPcieLinkWidth")};
    if (link_bandwidth(now.generation, now.lanes) > link_bandwidth(best.generation, best.lanes)) best = now;
    stream.synchronize();
  }
  return best;
}
// A GPU that uses the host's page tables shares another link with it (NVLink-C2C), and PCIe is idle.
bool by_pcie() { return attribute(cudaDevAttrPageableMemoryAccessUsesHostPageTables) == 0; }

Link link_under_load(const Nvml& nvml) {
  static const Link link = by_pcie() ? measure_link(nvml) : Link{};
  return link;
}

// Upper limit of the bytes per second of copies; 0 if it is not known.
double link_peak(const Nvml& nvml) {
  if (!by_pcie()) return 0;
  const Link now = link_under_load(nvml);
  return std::max(
      link_bandwidth(now.generation, now.lanes),
      link_bandwidth(nvml.number("nvmlDeviceGetMaxPcieLinkGeneration"), nvml.number("nvmlDeviceGetMaxPcieLinkWidth")));
}

// Desktop boards run above the clock of their data sheets.
double highest_clock_ratio(const Nvml& nvml) {
  const double stated = device_clock_hz(), most = 1e6 * nvml.clock("nvmlDeviceGetMaxClockInfo", 1);
  return stated > 0 ? std::max(1.0, most / stated) : 1;
}

std::string hex_uuid(const cudaUUID_t& uuid) {
  std::string out;
  for (const char c : uuid.bytes) {
    char text[4];
    std::snprintf(text, sizeof text, "%02x", static_cast<unsigned char>(c));
    out += text;
  }
  return out;
}

std::string version(int v) { return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10); }

}  // namespace

double device_clock_hz() { return 1e3 * attribute(cudaDevAttrClockRate); }

Machine device_machine(Machine machine) {
  cudaDeviceProp properties;
  KVCAST_CUDA(cudaGetDeviceProperties(&properties, 0));
  std::size_t free = 0, total = 0;
  KVCAST_CUDA(cudaMemGetInfo(&free, &total));
  machine.sm_count = properties.multiProcessorCount;
  machine.l2_bytes = properties.l2CacheSize;
  machine.device_bytes = static_cast<double>(free);
  // Two transfers per clock, over the width of the bus.
  machine.hbm_peak = 2e3 * attribute(cudaDevAttrMemoryClockRate) * attribute(cudaDevAttrGlobalMemoryBusWidth) / 8;
  const Nvml nvml;
  machine.tensor_peak = tensor_peak(properties.name) * highest_clock_ratio(nvml);
  machine.link_peak = link_peak(nvml);
  machine.compute_capability = properties.major * 10 + properties.minor;
  return machine;
}

void add_device_environment(Json& e) {
  cudaDeviceProp properties;
  KVCAST_CUDA(cudaGetDeviceProperties(&properties, 0));
  int driver = 0, runtime = 0;
  KVCAST_CUDA(cudaDriverGetVersion(&driver));
  KVCAST_CUDA(cudaRuntimeGetVersion(&runtime));
  const Nvml nvml;
  const Link link = link_under_load(nvml);
  e["device"] = properties.name;
  e["device_uuid"] = hex_uuid(properties.uuid);
  e["compute_capability"] = properties.major * 10 + properties.minor;
  e["driver"] = nvml.driver().empty() ? version(driver) : nvml.driver();
  e["driver_cuda"] = version(driver);
  e["runtime"] = version(runtime);
  e["sm_count"] = properties.multiProcessorCount;
  e["l2_bytes"] = properties.l2CacheSize;
  e["hbm_bytes"] = static_cast<double>(properties.totalGlobalMem);
  e["hbm_peak"] = 2e3 * attribute(cudaDevAttrMemoryClockRate) * attribute(cudaDevAttrGlobalMemoryBusWidth) / 8;
  e["tensor_peak"] = tensor_peak(properties.name);
  e["clock_hz"] = device_clock_hz();
  e["clock_reached_hz"] = reached_clock_hz();
  // NVML's clock kinds: 1 is the multiprocessors', 2 the memory's.
  e["clock_now_mhz"] = static_cast<int>(nvml.clock("nvmlDeviceGetClockInfo", 1));
  e["clock_max_mhz"] = static_cast<int>(nvml.clock("nvmlDeviceGetMaxClockInfo", 1));
  e["memory_clock_now_mhz"] = static_cast<int>(nvml.clock("nvmlDeviceGetClockInfo", 2));
  e["copy_engines"] = properties.asyncEngineCount;
  e["pcie_generation_under_load"] = static_cast<int>(link.generation);
  e["pcie_lanes"] = static_cast<int>(link.lanes);
}

}  // namespace kvcast::kernels
