#include "config/card_recurrence.hpp"

#include <vector>

#include "config/section.hpp"

namespace kvcast::config {
namespace {

// From 0. Lists of a file name a kind for each layer (1 or "full_attention": it attends), or the layers, from 1.
std::vector<std::int64_t> listed_layers(const Node& list, std::int64_t layers) {
  if (list.kind() != Node::Kind::kList) throw UserError(list.where(), "expected a list of layers");
  std::vector<std::int64_t> attend;
  const bool by_layer = static_cast<std::int64_t>(list.items().size()) == layers;
  for (std::size_t i = 0; i < list.items().size(); ++i) {
    const Node& item = list.items()[i];
    if (!by_layer) {
      attend.push_back(read_integer(item, "a layer that attends", 1, layers) - 1);
    } else if (is_scalar(&item) &&
               (item.text() == "1" || item.text() == "full_attention" || item.text() == "attention")) {
      attend.push_back(static_cast<std::int64_t>(i));
    }
  }
  return attend;
}

// The layers as a key of the model: every n-th one, or all of them by number.
Node with_attending(Node model, const std::vector<std::int64_t>& attend, std::int64_t layers,
                    const SourceLocation& at) {
  const std::int64_t every = attend.empty() ? 0 : attend.front() + 1;
  bool periodic = every > 1 && static_cast<std::int64_t>(attend.size()) == layers / every;
  std::vector<Node> numbers;
  for (std::size_t i = 0; i < attend.size(); ++i) {
    periodic = periodic && attend[i] == static_cast<std::int64_t>(i + 1) * every - 1;
    numbers.push_back(Node::scalar(std::to_string(attend[i]), at));
  }
  if (periodic) return model.with("recurrence.attention_every", Node::scalar(std::to_string(every), at));
  return model.with("recurrence.attention_layers", Node::list(numbers, at));
}

// Mamba: `expand` times the width between layers are channels, whose keys are of the state's dimensions. One layer of
// each period attends.
Node with_channels(Node model, std::int64_t layers, const FindNumber& find) {
  const Node& hidden = *find("hidden");
  const auto whole = [&](const char* number, std::int64_t low, std::int64_t high) {
    const Node* const value = find(number);
    if (value == nullptr) throw UserError(hidden.where(), fmt::format("the file lacks {}", number));
    return read_integer(*value, number, low, high);
  };
  const auto set = [&](const char* key, std::int64_t number) {
    model = model.with(std::string("recurrence.") + key, Node::scalar(std::to_string(number), hidden.where()));
  };
  constexpr std::int64_t kWidthOfStep = 16;  // of the model, for one of the step's rank, where the file says `auto`
  const std::int64_t width = read_integer(hidden, "hidden", 1, 1'000'000);
  model = model.with("recurrence.kind", Node::scalar("mamba1", hidden.where()));
  set("heads", width * whole("recurrence.expand", 1, 64)), set("key_heads", 1), set("value_dim", 1);
  set("key_dim", whole("recurrence.key_dim", 1, 1'000'000)), set("taps", whole("recurrence.taps", 0, 64));
  const Node* const rank = find("recurrence.step_rank");
  const bool stated = is_scalar(rank) && rank->text() != "auto";
  set("step_rank", stated ? whole("recurrence.step_rank", 1, 1'000'000) : (width + kWidthOfStep - 1) / kWidthOfStep);
  const std::int64_t period = whole("recurrence.period", 1, layers), offset = whole("recurrence.offset", 0, layers);
  std::vector<std::int64_t> attend;
  for (std::int64_t layer = offset; layer < layers; layer += period) attend.push_back(layer);
  return with_attending(model, attend, layers, find("recurrence.period")->where());
}

}  // namespace

Node with_recurrence(Node model, const std::string& kind, std::int64_t layers, const FindNumber& find) {
  if (kind == "mamba1") return with_channels(model, layers, find);
  const Node* const heads = find("recurrence.heads") != nullptr ? find("recurrence.heads") : find("n_q_heads");
  model = model.with("recurrence.kind", Node::scalar(kind, heads->where()));
  model = model.with("recurrence.heads", *heads);
  const Node* const width = find("head_dim");
  for (const char* key : {"recurrence.key_heads", "recurrence.key_dim", "recurrence.value_dim", "recurrence.taps"}) {
    const bool is_width = std::string_view(key).ends_with("dim");
    const Node* const value = find(key) != nullptr ? find(key) : is_width ? width : nullptr;
    if (value != nullptr) model = model.with(key, *value);
    if (value == nullptr && is_width) throw UserError(heads->where(), fmt::format("the file lacks {}", key));
  }
  if (const Node* gate = find("recurrence.full_gate")) model = model.with("recurrence.full_gate", *gate);
  if (const Node* blocks = find("recurrence.blocks")) return model.with("blocks", *blocks);
  if (const Node* list = find("recurrence.attending"))
    return with_attending(model, listed_layers(*list, layers), layers, list->where());
  if (const Node* every = find("recurrence.every")) return model.with("recurrence.attention_every", *every);
  throw UserError(heads->where(), "the file does not say which layers attend");
}

}  // namespace kvcast::config
