// How long chunks are, in one place. The numbers are measured (docs/log.md).
#pragma once

#include <cstdint>

namespace lion {

// A chunk of C tokens costs C^2 D, and C D V for what it has to do with the others. Short sequences are cheaper
// in one block, all the more if several orders share its scores.
inline std::int64_t chunk_tokens(std::int64_t tokens, std::int64_t D, std::int64_t V, std::int64_t orders, bool backward) {
  (void)backward;
  std::int64_t width = (D + V) / 2;
  std::int64_t block = orders > 1 ? 256 : 144;
  if (tokens <= block) return tokens > 0 ? tokens : 1;
  std::int64_t most = width <= 32 ? 48 : width <= 64 ? 64 : 72;
  std::int64_t count = (tokens + most - 1) / most;
  return (tokens + count - 1) / count;
}

}  // namespace lion
