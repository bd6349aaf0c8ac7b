// Owners of memory: what bytes of a pool are for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvcast::graph {

// Each owner with the text by which results, formulas and charts name it. A policy with a new kind of storage adds one.
#define KVCAST_OWNERS(X)                                    \
  X(kWeights, "weights")                                    \
  X(kActivations, "activations")                            \
  X(kAttentionScores, "attention scores")                   \
  X(kCausalMask, "causal mask")                             \
  X(kPromptLogits, "prompt logits")                         \
  X(kUnpackedLayer, "unpacked layer")                       \
  X(kKvCache, "KV cache")                                   \
  X(kUncompressedLayers, "KV cache of uncompressed layers") \
  X(kSlidingCache, "sliding-window cache")                  \
  X(kStates, "recurrent states")                            \
  X(kDraft, "draft of speculation")                         \
  X(kPartFilledPages, "part-filled pages")                  \
  X(kReservedCache, "reserved cache")                       \
  X(kHostCache, "KV cache in host memory")                  \
  X(kHostValues, "values in host memory")                   \
  X(kFilteredCopy, "filtered copy of the KV cache")         \
  X(kRecalledPages, "recalled pages kept")                  \
  X(kAttentionTotals, "attention totals")                   \
  X(kClusterCache, "cache of clusters")                     \
  X(kCentroidLists, "centroid lists")                       \
  X(kCentroids, "centroids")                                \
  X(kCentroidsAndMeans, "centroids and mean values")        \
  X(kExecutionBuffer, "execution buffer")                   \
  X(kFetchedPairs, "fetched pairs")                         \
  X(kGateKeys, "gate keys")                                 \
  X(kGateWeights, "gate weights")                           \
  X(kHashPlanes, "hash planes")                             \
  X(kHashTables, "hash tables")                             \
  X(kIndex, "index")                                        \
  X(kIndexGraph, "index graph")                             \
  X(kIndexKeys, "index keys")                               \
  X(kIndexLists, "index lists")                             \
  X(kIndexedKeys, "keys of the index")                      \
  X(kKeyLabels, "labels of keys")                           \
  X(kLandmarks, "landmarks")                                \
  X(kLastQueries, "last queries")                           \
  X(kLowRankKeys, "low-rank keys")                          \
  X(kMeanKeys, "mean keys")                                 \
  X(kMeanValues, "mean values")                             \
  X(kDroppedMeans, "means of dropped pairs")                \
  X(kKeyNorms, "norms of keys")                             \
  X(kPackedKeys, "packed keys")                             \
  X(kPageSummaries, "page summaries")                       \
  X(kPartialKeys, "partial keys")                           \
  X(kPartialQueryWeights, "partial query weights")          \
  X(kPrincipalComponents, "principal components")           \
  X(kSecondKeyCopy, "second copy of keys")                  \
  X(kStagingBuffers, "staging buffers")

enum class Owner : std::uint16_t {
#define KVCAST_OWNER(id, text) id,
  KVCAST_OWNERS(KVCAST_OWNER)
#undef KVCAST_OWNER
};

std::string_view owner_name(Owner owner);
// The texts of all owners, in the order of the enumeration.
const std::vector<std::string>& owner_names();
std::optional<Owner> find_owner(std::string_view name);

// Returns whether an owner's bytes are estimates: which operands are live at once depends on the framework.
constexpr bool is_temporary(Owner owner) { return owner == Owner::kActivations || owner == Owner::kAttentionScores; }

}  // namespace kvcast::graph
