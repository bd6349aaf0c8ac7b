// A recipe: the statistics of attention heads, and the task, from which a synthetic trace is made.
//
// The defaults are those of a model of grouped-query attention, fitted so that compression policies rank as in
// published long-context benchmarks. Each can be changed in traces/recipes/NAME.yaml under the section and key named
// here. Lengths of vectors are in units of channels of unit variance; logits are q·k/√d. N is a standard normal
// variable.
#pragma once

#include <functional>
#include <string>

#include "base/error.hpp"

namespace kvcast::trace {

// Shares of the KV heads; they add up to 1. About a quarter of the heads retrieve (DuoAttention, arXiv:2410.10819).
struct HeadMix {
  double retrieval = 0.375;  // match content anywhere in the context
  double local = 0.375;      // attend to the tokens just before
  double streaming = 0.25;   // attend to the first token and little else
  double least_share = 0.5;  // smallest share of a retrieval group's query heads that retrieve
  double most_share = 1;     // largest share, of at least one head; the others idle
};

// Roles of RoPE pairs.
struct ChannelModel {
  double content_share = 0.40625;  // share of the slowest pairs, which carry content ...
  double content_turn = 1.75;      // ... unless they turn by more radians than this over the prompt
  double outlier_share = 0.21875;  // share of the slowest pairs, among which outlier channels lie ...
  double outlier_turn = 0.7;       // ... unless they turn by more than this
  double outliers = 4;             // outlier channels per 128 channels, mean over heads
  int outliers_spread = 2;         // uniform over heads, from the mean minus this to the mean plus this
  double recency_shortest = 32;    // tokens: wavelengths of the pairs that encode recency
  double recency_longest = 6000;
};

// Keys are mean + scale · content, before RoPE.
struct KeyModel {
  double mean = 0.4;           // standard deviation of a channel's mean
  double scale_spread = 0.32;  // log-normal spread of channel scales
  double outlier_mean = 2.33;  // mean of outlier channels, opposite in sign to that of queries
  double outlier_scale = 0.35;
  double recency_mean = 1.2;  // length of the mean of a recency pair, in heads of groups that retrieve
  // The same in other groups. Distant queries are similar in all heads (CTkvr, observation 1: above 0.8 within 1000
  // tokens). Therefore, also in heads that attend nearby, the part that rotates with the position is the smaller part
  // of a query. Its match with the keys is fixed (RecencyModel), so the keys' part is the longer one;
  // QueryModel::other_outlier is the constant part.
  double other_recency_mean = 2.2;
  double recency_scale = 0.35;
  double amplitude_spread = 0.15;  // log-normal spread of the length of a token's content
  double topic_share = 0.16;       // share of the content's variance that the tokens of a topic have in common
  int topic_tokens = 48;
  double topic_memory = 0.6;  // correlation of a topic with the previous one
};

// Queries are mean + strength · channel weights · target, before RoPE.
struct QueryModel {
  double mean = 0.35;         // standard deviation of a channel's mean
  double jitter = 0.14;       // standard deviation of its change from query to query
  double outlier = 9.2;       // length on each of 4 outlier channels of 128, in heads of groups that retrieve
  double other_outlier = 20;  // the same in other groups
  double outlier_spread = 0.1;
  double weight_spread = 0.25;  // log-normal spread of a head's channel weights
  double strength = 2.45;       // standard deviation of a retrieval head's logits over unrelated tokens
  double strength_spread = 0.15;
  // Share of `strength`. Heads of a retrieval group that do not retrieve read the same hidden state and seek the same
  // target, too weakly to find it. If they ignored it, their queries would be most similar to the adjacent ones,
  // whatever the target, and CTkvr (max over the group) would never reach the prompt queries with a similar target.
  double idle_strength = 0.4;
  double other_strength = 0.05;  // the same in heads of other groups
  double target = 0.92;          // amplitude of the step's target in the sought content
  double drift = 0.39;           // amplitude of a slowly changing rest
  double drift_memory = 0.95;    // its correlation from query to query
};

// Logit of a key without content at the query's own position, relative to distant keys.
struct RecencyModel {
  double retrieval = 0.84;
  double idle = 1.68;  // heads of a retrieval group that do not retrieve
  double local = 16;
  double streaming = 14;
  double spread = 0.2;  // log-normal spread over local heads
  // Distance in tokens to the position that a local or streaming head prefers: most heads put little attention on the
  // current token (Clark et al. 2019, arXiv:1906.04341, section 3.1).
  double back = 8;
};

// The first token (Xiao et al. 2024, arXiv:2309.17453): its logit above that of the mean token.
struct SinkModel {
  double retrieval = 12.39;
  double local = 17.5;
  double streaming = 18.5;
  double idle_factor = 1.1;  // factor on the queries' outliers in a retrieval group's idle heads
  double key_noise = 0.3;
  double value_scale = 0.1;  // its value is short, so that attention on the sink adds little to the output
};

// Coding of content, as shares of variance.
struct CodeModel {
  double type = 0.15;       // part of a needle's identity that all needles have in common
  double phrase = 0.68;     // part of a key phrase token that is the needle's identity
  double item = 0.5;        // part of the first value token that is the needle's identity
  double item_decay = 2.5;  // the part falls by a factor of e over this many value tokens
  // Part of the rest of a value token that all tokens of its kind (a digit, two letters of a name) share. If the last
  // queries of a prompt of UUIDs serve as centroids, those of one or two pairs find 0.3 to 0.4 of another pair, and
  // those of thirty find 0.86 (CTkvr, table 14): queries at tokens of one kind have similar targets.
  double token = 0.5;
  int token_kinds = 16;
  double odd = 0.02;  // share of running text's tokens that are of these kinds too: numbers and names
};

struct NeedleModel {
  double amplitude = 1.29;         // amplitude of its keys' content, at 48 content channels
  double amplitude_spread = 0.11;  // log-normal spread over KV heads
  double content = 0.96;           // length of the code in the content
  double noise = 0.21;
  double distractor = 0.8;  // relative amplitude of needles and spots that are not asked for
  // A model that was trained for a context finds its needles there. Share of two effects that keys and queries
  // compensate: what a prompt of a length other than 16384 adds to the softmax's denominator (its logarithm), and the
  // loss of distant matches by RoPE in the model's slowest pairs.
  double trained = 1;
};

// The question: the last tokens of the prompt, whose queries seek the needles.
struct QuestionModel {
  int tokens = 32;
  double strength = 0.7;  // relative to a decode query's strength
  double strength_spread = 0.8;
  int key_queries = 3;     // per needle asked for: queries that seek its key phrase
  double key_share = 0.9;  // length of the needle's identity in these queries
  double key_noise = 0.4;
  int value_queries = 1;  // queries that seek the first value token, over all needles
  // Constant share of the variance of a head's target where nothing is asked for: distant queries are similar (CTkvr,
  // observation 1), and the best 256 tokens of a head over 32 steps are no more than 1200 distinct ones (RocketKV,
  // arXiv:2502.14051, section 3.1).
  double common_share = 0.5;
  int earlier = 0;       // needles of an earlier turn; the question seeks those after them
  int type_queries = 0;  // queries that seek the part that all needles have in common
  // Questions in a row, of `tokens` each, at the end of the prompt; each before the last seeks needles of its own, and
  // a turn ends with each. Answers to them are not part of the prompt.
  int turns = 1;
};

// Tokens that resemble the target of the question without being part of it.
struct DecoyModel {
  double count = 80;       // decoys in a prompt of 16384 tokens
  double growth = 0.25;    // exponent of the prompt length in the growth of `count`
  int queries = 20;        // number of the question's queries that decoys match
  double amplitude = 0.9;  // relative to a needle's
  double amplitude_spread = 0.38;
};

// Pieces of text that an answer is based on: tokens around a middle, which share the subject of the spot.
struct EvidenceModel {
  double share = 0.8;       // share of a token's variance that is the spot's subject
  double amplitude = 0.85;  // relative to a needle's
  double middle = 1.3;      // amplitude of the middle token, relative to the others
};

// Task of the sequence.
struct RecipeTask {
  std::string name;               // written into the trace
  std::string haystack = "text";  // text | repeated
  int repeat_tokens = 25;         // period of a repeated haystack
  double repeat_share = 0.95;     // share of its content's variance that repeats
  double earliest = 0;            // needles lie from this share of the haystack on ...
  double latest = 1;              // ... to this one
  int needles = 1;                // needles asked for, one after the other; 0: free generation
  int distractors = 0;            // needles (or spots of evidence) that are not asked for ...
  double distractor_density = 0;  // ... and further ones per 1000 tokens of the prompt
  int key_tokens = 4;
  int gap_tokens = 1;       // between key phrase and value
  int value_tokens = 22;    // one decode step each
  double shared_key = 0;    // share of identity that the needles asked for have in common (several values of a key);
                            // the question names this part and no single needle
  int pause_steps = 0;      // free decode steps after each needle
  int copies = 1;           // occurrences of each needle; if more than one: words without a key phrase, anywhere
  double copy_density = 0;  // occurrences per 1000 tokens of the prompt, for the most frequent word
  double copy_decay = 0;    // that of the k-th word falls by this power of k
  int spots = 0;            // spots of evidence, instead of needles: each step attends to several of them at once
  int spot_radius = 6;      // tokens to both sides of a spot's middle
  int spot_steps = 3;       // decode steps that are based on evidence
  int spots_a_step = 0;     // spots per step, one group after the other; 0: all of them at each step
  // Long generation: sections of this many decode steps. Each begins with spot_steps steps that are based on evidence
  // in the prompt (each section on the next spots), followed by back_steps that are based on the beginning of an
  // earlier section.
  int section_steps = 0;  // 0: one answer, no sections
  int back_steps = 0;
  int back_reach = 1;  // maximum distance of the earlier section, in sections; the share of distance k falls as 1 / k
};

struct Recipe {
  std::string name;
  std::string description;
  int window = 128;  // last prompt queries that are captured
  HeadMix heads;
  ChannelModel channels;
  KeyModel keys;
  QueryModel queries;
  RecencyModel recency;
  SinkModel sink;
  CodeModel codes;
  NeedleModel needles;
  QuestionModel question;
  DecoyModel decoys;
  EvidenceModel evidence;
  RecipeTask task;
};

// Visits every number of a recipe with its section, key and range: the reader, the identity and the tests share this
// one list.
class ParameterVisitor {
 public:
  virtual ~ParameterVisitor() = default;
  virtual void section(const char* name) = 0;  // section of the numbers that follow
  virtual void number(const char* key, double& value, double low, double high) = 0;
  virtual void integer(const char* key, int& value, int low, int high) = 0;
};
void visit_parameters(Recipe& recipe, ParameterVisitor& visitor);

// Reads a recipe. Throws UserError with file:line:col for unknown keys, wrong types, values out of range, and shares
// that do not add up.
Recipe read_recipe(const std::string& path);

// The location of a section by its name.
using SectionLocations = std::function<SourceLocation(const char* section)>;

// Checks the conditions on several numbers (shares that add up, a question with enough tokens for its queries). Throws
// UserError at the section.
void check_recipe(const Recipe& recipe, const SectionLocations& where);

// The names of the files under traces/recipes, in order.
std::vector<std::string> recipe_names();

// Finds traces/recipes/NAME.yaml in the working directory, then in the source tree; a name with '/' or ending in .yaml
// is a path. Throws UserError, which lists the existing recipes for a name.
std::string find_recipe(const std::string& name, const SourceLocation& asked_at = {});

// The content as text, defaults included: equal recipes give equal text.
std::string canonical(const Recipe& recipe);

}  // namespace kvcast::trace
