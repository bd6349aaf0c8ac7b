#include "policies/recorded_selections.hpp"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/index.hpp"
#include "base/whole_file.hpp"

namespace kvcast::policy {
namespace {

using nlohmann::json;

// The tokens that one head holds on the GPU, step by step. A step appends its token and adds what it fetches; attention
// reads before anything is evicted.
class FollowedHead {
 public:
  // first: the head's lists after the prompt, if the record has them; otherwise the whole prompt is resident.
  FollowedHead(const RecordedSelections& record, const HeadSelection& first)
      : prompt_(record.prompt_tokens),
        listed_(record.has_prompt_lists()),
        resident_(index(prompt_ + record.steps()), false) {
    if (listed_) {
      for (const std::int32_t i : first.attended) put(i, true);
    } else {
      for (std::int32_t i = 0; i < prompt_; ++i) put(i, true);
    }
  }

  // Returns the first token that is attended to but neither resident nor fetched, −1 if there is none.
  std::int32_t step(int t, const HeadSelection& lists) {
    put(static_cast<std::int32_t>(prompt_ + t), true);
    for (const std::int32_t i : lists.fetched) put(i, true);
    const auto here = [&](std::int32_t i) { return resident_[index(i)]; };
    const auto absent = std::find_if_not(lists.attended.begin(), lists.attended.end(), here);
    const auto read = std::count_if(lists.attended.begin(), lists.attended.end(), here);
    chooses_ = chooses_ || !lists.fetched.empty() || (listed_ && read < held_);
    if (last_ != nullptr) {
      ++compared_;
      appended_ += appends(last_->attended, lists.attended) ? 1 : 0;
    }
    last_ = &lists;
    for (const std::int32_t i : lists.evicted) put(i, false);
    keeps_all_ = keeps_all_ && lists.fetched.empty() && lists.evicted.empty();
    return absent == lists.attended.end() ? -1 : *absent;
  }

  bool holds_the_same(const FollowedHead& other) const { return resident_ == other.resident_; }
  double held() const { return held_; }
  // Nothing was fetched or evicted, so that later tokens stay as well.
  bool keeps_all() const { return keeps_all_; }
  // Every step attends to the tokens of the step before and one later token, and this is no choice among more tokens:
  // a head that selects pages may select the same ones while the last page fills.
  bool grows() const { return !chooses_ && compared_ > 0 && appended_ == compared_; }

 private:
  static bool appends(const std::vector<std::int32_t>& before, const std::vector<std::int32_t>& now) {
    return now.size() == before.size() + 1 && std::equal(before.begin(), before.end(), now.begin());
  }

  void put(std::int32_t token, bool resident) {
    const auto i = index(token);
    if (resident_[i] == resident) return;
    resident_[i] = resident;
    held_ += resident ? 1 : -1;
  }

  std::int64_t prompt_;
  bool listed_;
  std::vector<bool> resident_;  // by position
  std::int64_t held_ = 0;
  bool chooses_ = false, keeps_all_ = true;
  int compared_ = 0, appended_ = 0;  // steps after the first, and those of them that only append
  const HeadSelection* last_ = nullptr;
};

class SelectionsReader {
 public:
  SelectionsReader(std::string path, std::int64_t prompt_tokens) {
    record_.path = std::move(path);
    record_.prompt_tokens = prompt_tokens;
  }

  RecordedSelections read() {
    const std::string text = read_whole_file(record_.path, "the recorded selections");
    for (std::size_t from = 0; from < text.size();) {
      const std::size_t end = std::min(text.find('\n', from), text.size());
      ++line_;
      if (end > from) add(json::parse(text.begin() + from, text.begin() + end, nullptr, false));
      from = end + 1;
    }
    if (record_.layers.empty()) fail("the file holds no selections");
    check_complete();
    follow_heads();
    return std::move(record_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw UserError({record_.path, line_, 0}, what); }

  int whole(const json& line, const char* key, int low) const {
    const auto at = line.find(key);
    if (at == line.end() || !at->is_number_integer() || at->get<std::int64_t>() < low ||
        at->get<std::int64_t>() > 1'000'000) {
      fail(fmt::format("\"{}\" must be an integer of at least {}", key, low));
    }
    return at->get<int>();
  }

  // Ascending token positions.
  std::vector<std::int32_t> positions(const json& line, const char* key, bool needed) const {
    const auto at = line.find(key);
    if (at == line.end() && !needed) return {};
    std::vector<std::int32_t> out;
    bool good = at != line.end() && at->is_array();
    for (std::size_t i = 0; good && i < at->size(); ++i) {
      const json& x = (*at)[i];
      good = x.is_number_integer() && x.get<std::int64_t>() >= (out.empty() ? 0 : out.back() + 1) &&
             x.get<std::int64_t>() <= 100'000'000;
      if (good) out.push_back(x.get<std::int32_t>());
    }
    if (!good) fail(fmt::format("\"{}\" must be a list of ascending token positions", key));
    return out;
  }

  // The trace that a line names: the first one in records of kvcast, any in others.
  void take_trace(const json& line) {
    const auto named = line.find("trace");
    if (named == line.end()) return;
    if (!named->is_string()) fail("\"trace\" must be a text: the identity that `kvcast trace info` prints");
    const auto identity = named->get<std::string>();
    if (!record_.trace.empty() && identity != record_.trace) fail("the lines before are of another trace");
    record_.trace = identity;
  }

  void add(const json& line) {
    if (!line.is_object()) fail("expected a JSON object per line");
    for (const auto& [key, value] : line.items()) {
      static const std::set<std::string> known = {"layer",    "step",    "kv_head", "q_head",
                                                  "attended", "fetched", "evicted", "trace"};
      if (!known.contains(key))
        throw UserError({record_.path, line_, 0}, fmt::format("unknown key \"{}\"", key), {known.begin(), known.end()});
    }
    take_trace(line);
    const bool by_query = line.contains("q_head");
    if (by_query == line.contains("kv_head")) fail("expected either \"kv_head\" or \"q_head\"");
    if (!record_.layers.empty() && by_query != record_.per_query_head) fail("the lines before select for other heads");
    record_.per_query_head = by_query;
    const int layer = whole(line, "layer", 0), step = whole(line, "step", -1);
    LayerSelection& selection = record_.layers[layer][step];
    selection.per_query_head = by_query;
    const auto head = index(whole(line, by_query ? "q_head" : "kv_head", 0));
    if (head != selection.heads.size())
      fail(out_of_order(layer, step, by_query ? "query" : "KV", head, selection.heads.size()));
    HeadSelection& lists = selection.heads.emplace_back();
    lists.attended = positions(line, "attended", true);
    lists.fetched = positions(line, "fetched", false);
    lists.evicted = positions(line, "evicted", false);
    check_visible(step, lists);
    lists.counts.fetched_runs = count_runs(lists.fetched);
    lines_[{layer, step}].push_back(line_);
    record_.fetches = record_.fetches || !lists.fetched.empty();
    const bool lacks = step == -1 && std::ssize(lists.attended) < record_.prompt_tokens;
    record_.partial = record_.partial || lacks || !lists.fetched.empty() || !lists.evicted.empty();
  }

  static std::string out_of_order(int layer, int step, const char* kind, std::size_t head, std::size_t expected) {
    return fmt::format("layer {}, step {}: found {} head {}, expected {} head {} (heads ascend from 0, one line each)",
                       layer, step, kind, head, kind, expected);
  }

  void check_visible(int step, const HeadSelection& lists) const {
    const std::int64_t visible = record_.prompt_tokens + step + 1;
    for (const auto& [does, list] : {std::pair("attends to", &lists.attended), std::pair("fetches", &lists.fetched),
                                     std::pair("evicts", &lists.evicted)}) {
      if (list->empty() || list->back() < visible) continue;
      fail(fmt::format("the recorded selections do not fit the trace: step {} {} position {}, but sees only {}", step,
                       does, list->back(), visible == 1 ? "0" : fmt::format("0 to {}", visible - 1)));
    }
  }

  // Every layer has the same steps, 0 and following, and the same heads.
  void check_complete() const {
    const auto& first = record_.layers.begin()->second;
    for (const auto& [layer, steps] : record_.layers) {
      int expected = record_.has_prompt_lists() ? -1 : 0;
      if ((steps.begin()->first == -1) != record_.has_prompt_lists())
        fail(fmt::format("only some layers have lines with step -1: layer {} differs from the first", layer));
      for (const auto& [step, selection] : steps) {
        if (step != expected++) fail(fmt::format("layer {} has no step {}", layer, expected - 1));
        if (selection.heads.size() != first.begin()->second.heads.size()) {
          fail(fmt::format("layer {} step {} has {} heads, other lines have {}", layer, step, selection.heads.size(),
                           first.begin()->second.heads.size()));
        }
      }
      if (steps.size() != first.size())
        fail(fmt::format("layer {} has {} steps, the first layer {}", layer, steps.size(), first.size()));
    }
  }

  // Follows every head from the prompt to the last step.
  void follow_heads() {
    double heads = 0;
    std::optional<FollowedHead> first;  // of the layer
    for (const auto& [layer, steps] : record_.layers) {
      for (std::size_t h = 0; h < steps.begin()->second.heads.size(); ++h, ++heads) {
        FollowedHead head(record_, steps.begin()->second.heads[h]);
        record_.after_prompt += head.held();
        for (auto at = steps.lower_bound(0); at != steps.end(); ++at) {
          const std::int32_t absent = head.step(at->first, at->second.heads[h]);
          if (absent < 0 || !record_.fetches) continue;
          line_ = lines_.at({layer, at->first})[h];
          fail(fmt::format("step {} attends to position {}, which is neither resident nor fetched", at->first, absent));
        }
        if (h == 0) first = head;
        record_.same_tokens = record_.same_tokens && head.holds_the_same(*first);
        record_.after_last += head.held();
        record_.keeping += head.keeps_all() ? 1 : 0;
        record_.growing += head.grows() ? 1 : 0;
      }
    }
    const bool unknown = record_.fetches && !record_.has_prompt_lists();
    record_.same_tokens = record_.same_tokens && !unknown;
    for (double* sum : {&record_.after_prompt, &record_.after_last, &record_.keeping})
      *sum = unknown ? 0 : *sum / heads;
    record_.growing /= heads;
  }

  RecordedSelections record_;
  std::map<std::pair<int, int>, std::vector<int>> lines_;  // by layer and step: the line of each head
  int line_ = 0;
};

}  // namespace

RecordedSelections read_selections(const std::string& path, std::int64_t prompt_tokens) {
  return SelectionsReader(path, prompt_tokens).read();
}

}  // namespace kvcast::policy
