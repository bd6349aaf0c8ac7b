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

}  // namespace

Node with_recurrence(Node model, const std::string& kind, std::int64_t layers, const FindNumber& find) {
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
  if (const Node* blocks = find("recurrence.blocks")) return model.with("blocks", *blocks);
  if (const Node* list = find("recurrence.attending"))
    return with_attending(model, listed_layers(*list, layers), layers, list->where());
  if (const Node* every = find("recurrence.every")) return model.with("recurrence.attention_every", *every);
  throw UserError(heads->where(), "the file does not say which layers attend");
}

}  // namespace kvcast::config
