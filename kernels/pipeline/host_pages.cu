#include "pipeline/host_pages.hpp"

#include "cuda/case.hpp"
#include "pipeline/move.cuh"

namespace kvcast::kernels {

namespace {

const std::pair<const char*, Recall> kRecalls[] = {
    {"calls", Recall::kCalls}, {"batched", Recall::kBatched}, {"zero_copy", Recall::kZeroCopy}};

Recall parse_recall(const std::string& word) {
  for (const auto& [name, recall] : kRecalls) {
    if (word == name) return recall;
  }
  throw UsageError("recall: '" + word + "' is not calls, batched or zero_copy");
}

}  // namespace

Axis recall_axis() {
  Axis axis{"recall", {}};
  for (const auto& [name, recall] : kRecalls) axis.values.emplace_back(name);
  return axis;
}

bool read_pages(State& state, const PipelineShape& s, bool by_head, PageSetting& p) {
  const auto skip = [&state](const std::string& why) { return state.skip(why), false; };
  const Recall recall = parse_recall(state.word("recall"));
  const int page = as_int(state, "page"), budget = as_int(state, "budget"), missing = as_int(state, "missing");
  if (page < 1 || budget % page != 0 || s.context % page != 0 || 2 * budget > s.context)
    return skip("whole pages, a budget of at most half the context");
  const int fixed = as_int(state, "fixed") / page;
  p = {page, s.context / page, fixed, budget / page - 2 * fixed, fixed, missing, by_head, recall};
  if (fixed < 1 || p.chosen < 1 || missing < 1 || missing > p.chosen)
    return skip("sink and window of one page or more, and some of the chosen pages missing");
  if (recall != Recall::kBatched) return true;
  const std::string refused = no_copy_batch();
  return refused.empty() || skip(refused);
}

namespace {

// Host memory is the larger part of a long context, and locking it takes seconds: beyond this size the pages of several
// layers and sequences share memory. Copies are not affected: it is far more than caches hold.
constexpr double kMostHostBytes = 1 << 30;

double pool_pages(const PipelineShape& s, const PageSetting& p) {
  const double all = double{1} * s.layers * s.batch * p.pages, bytes = 4.0 * p.page * s.dim * s.kv_heads;
  return std::min(all, std::max(std::floor(kMostHostBytes / bytes), double{1} * p.pages));
}

}  // namespace

double host_pages_device_bytes(const PipelineShape& s, const PageSetting& p) {
  return 4.0 * s.layers * s.batch * p.slots() * p.page * s.kv_heads * s.dim;
}
double host_pages_host_bytes(const PipelineShape& s, const PageSetting& p) {
  return pool_pages(s, p) * 4.0 * p.page * s.dim * s.kv_heads;
}

HostPages::HostPages(const PipelineShape& s, const PageSetting& p)
    : s_(s),
      p_(p),
      layer_size_(as_size(s.batch) * as_size(p.slots()) * as_size(p.page) * as_size(s.kv_heads * s.dim)),
      host_(static_cast<std::size_t>(host_pages_host_bytes(s, p))),
      keys_(layer_size_ * as_size(s.layers)),
      values_(layer_size_ * as_size(s.layers)),
      turn_(as_size(s.layers), 0) {
  std::vector<std::uint32_t> lists;
  for (int b = 0; b < s.batch; ++b) {
    for (int i = 0; i < p.slots(); ++i) lists.push_back(static_cast<std::uint32_t>(i));
  }
  lists_ = DeviceArray<std::uint32_t>(lists);
  fill_host();
  fill_slots();
}

void HostPages::fill_host() {
  const std::size_t block = std::min<std::size_t>(host_.size(), 64 << 20);
  const DeviceArray<Half> numbers = half_normals(221, block / 2);
  for (std::size_t at = 0; at < host_.size(); at += block) {
    device_copy(host_.host<void>(at), numbers.data(), std::min(block, host_.size() - at));
  }
}

// Fills the first slots with the sink, the last ones with the window, and the selected slots with the pages after the
// sink.
void HostPages::fill_slots() {
  std::vector<std::uint32_t> first;
  for (int i = 0; i < p_.slots(); ++i) {
    const int behind = p_.slots() - i;
    first.push_back(static_cast<std::uint32_t>(i < p_.sink + p_.chosen ? i : p_.pages - behind));
  }
  const std::size_t width = as_size(s_.kv_heads * s_.dim), rows = as_size(p_.page);
  std::vector<Half> k(rows * width), v(rows * width);
  for (int layer = 0; layer < s_.layers; ++layer) {
    tables_.emplace_back();
    for (int i = 0; i < s_.heads(); ++i) tables_.back().insert(tables_.back().end(), first.begin(), first.end());
    for (int b = 0; b < s_.batch; ++b) {
      for (int slot = 0; slot < p_.slots(); ++slot) {
        const unsigned char* page = host_page(layer, b, first[as_size(slot)]);
        for (int t = 0; t < p_.page; ++t) {
          for (int h = 0; h < s_.kv_heads; ++h) {
            const std::size_t at = as_size(t) * width + as_size(h * s_.dim);
            std::memcpy(&k[at], host_row(page, h, 0, t), as_size(s_.dim) * 2);
            std::memcpy(&v[at], host_row(page, h, 1, t), as_size(s_.dim) * 2);
          }
        }
        device_copy(keys(layer) + slot_row(b, slot), k.data(), k.size() * 2);
        device_copy(values(layer) + slot_row(b, slot), v.data(), v.size() * 2);
      }
    }
  }
}

unsigned char* HostPages::host_page(int layer, int sequence, std::uint32_t page) const {
  const std::size_t index = as_size(layer * s_.batch + sequence) * as_size(p_.pages) + page;
  return host_.host<unsigned char>(index % pool() * page_bytes());
}

void HostPages::copy(Stream& stream, void* to, const void* from, std::size_t bytes) {
  if (p_.recall == Recall::kBatched) return batch_.add(to, from, bytes);
  stream.copy(to, from, bytes);
}

void HostPages::end_group(Stream& stream) {
  if (p_.recall != Recall::kBatched) return;
  batch_.issue(stream.queue());
  batch_.clear();
}

void HostPages::gather(Stream& stream, int layer, const std::uint32_t* ids, int first, int last, bool checking) {
  if (first >= last) return;
  const PageGather shape{Divisor(p_.page), Divisor(s_.dim / 8 * (p_.by_head ? 1 : s_.kv_heads)),
                         parts(),          first,
                         last - first,     layer * s_.batch * p_.pages,
                         p_.pages,         static_cast<int>(pool()),
                         p_.sink,          turn(layer),
                         p_.chosen,        p_.slots()};
  const std::size_t pieces = page_bytes() / as_size(parts()) / 16;
  launch({blocks_for(pieces, kGatherThreads * kGatherInFlight), as_unsigned(p_.missing),
          as_unsigned(s_.batch * (last - first))},
         kGatherThreads, 0, stream.queue(), gather_pages, shape, host_.device<const Vec16>(), ids, keys(layer),
         values(layer));
  if (!checking) return;
  gathered_.push_back({layer, turn(layer), first, last, PinnedMemory(as_size(s_.batch * parts() * p_.chosen) * 4)});
  stream.copy(gathered_.back().ids.host<void>(), ids, gathered_.back().ids.size());
}

std::vector<std::uint32_t> HostPages::shown_pages(int layer, int sequence, int head) const {
  const auto begin = shown_.begin() + (sequence * s_.kv_heads + head) * p_.slots();
  std::vector<std::uint32_t> pages(begin, begin + p_.slots());
  const int part = p_.by_head ? head : 0;
  for (std::size_t n = 0; n < shown_gathers_; ++n) {
    const Gathered& g = gathered_[n];
    if (g.layer != layer || part < g.first || part >= g.last) continue;
    const std::uint32_t* ids = g.ids.host<const std::uint32_t>() + (sequence * parts() + part) * p_.chosen;
    for (int i = 0; i < p_.missing; ++i) pages[as_size(p_.sink + (g.turn + i) % p_.chosen)] = ids[i];
  }
  return pages;
}

const Half* HostPages::host_row(const unsigned char* page, int head, int which, int token) const {
  const int row = p_.by_head ? (head * 2 + which) * p_.page + token : (which * p_.page + token) * s_.kv_heads + head;
  return reinterpret_cast<const Half*>(page) + as_size(row) * as_size(s_.dim);
}

AppendTo HostPages::last_row(int layer) const {
  const std::size_t width = as_size(s_.kv_heads * s_.dim);
  const std::size_t at = slot_row(0, p_.slots() - 1) + as_size(p_.page - 1) * width;
  return {keys(layer) + at, values(layer) + at, {slot_row(1, 0), as_size(s_.dim)}};
}

AttentionShape HostPages::attention(int sm_count) const {
  const int tokens = p_.slots() * p_.page;
  AttentionShape a{s_.batch,  s_.kv_heads, s_.group(), 1, tokens,
                   p_.page,   p_.slots(),  1,          1, 1.0f / std::sqrt(static_cast<float>(s_.dim)),
                   p_.slots()};
  a.splits = AttentionRun::splits_for(tokens, s_.heads(), sm_count);
  return a;
}

void HostPages::rows(int layer, int sequence, int head, std::vector<float>& k, std::vector<float>& v) const {
  const std::vector<float> all_keys = floats_of(keys_), all_values = floats_of(values_);
  const std::vector<std::uint32_t> pages = shown_pages(layer, sequence, head);
  const std::size_t d = as_size(s_.dim);
  for (int slot = 0; slot < p_.slots(); ++slot) {
    const bool recalled = slot >= p_.sink && slot < p_.sink + p_.chosen;
    for (int t = 0; t < p_.page; ++t) {
      if (recalled) {
        const unsigned char* page = host_page(layer, sequence, pages[as_size(slot)]);
        for (std::size_t i = 0; i < d; ++i) k.push_back(value_of(host_row(page, head, 0, t)[i]));
        for (std::size_t i = 0; i < d; ++i) v.push_back(value_of(host_row(page, head, 1, t)[i]));
      } else {
        const std::size_t at = layer_size_ * as_size(layer) + slot_row(sequence, slot) +
                               as_size(t) * as_size(s_.kv_heads) * d + as_size(head) * d;
        k.insert(k.end(), &all_keys[at], &all_keys[at] + d);
        v.insert(v.end(), &all_values[at], &all_values[at] + d);
      }
    }
  }
}

}  // namespace kvcast::kernels
