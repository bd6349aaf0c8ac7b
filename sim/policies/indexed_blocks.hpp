// Policies whose attention reads the blocks that a learned indexer selects (policy/block_indexer.hpp).
#pragma once

#include <memory>

#include "policy/block_indexer.hpp"
#include "policy/policy.hpp"

namespace kvcast::policy {

std::unique_ptr<Policy> index_blocks(const BlockIndexer& indexer);

}  // namespace kvcast::policy
