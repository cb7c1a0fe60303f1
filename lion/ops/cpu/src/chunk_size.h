// How long chunks are, in one place. The numbers are measured (docs/log.md).
#pragma once

#include <algorithm>
#include <cstdint>

namespace lion {

// A chunk of C tokens costs C^2 D for itself, and C D V for what it has to do with the others. So short chunks do
// less, until the work on each is too little; and a sequence of up to some 2.5 D tokens is cheaper as one block, all
// the more if several orders share its scores.
inline std::int64_t chunk_tokens(std::int64_t tokens, std::int64_t D, std::int64_t V, std::int64_t orders,
                                 bool diagonal) {
  if (diagonal) return std::max<std::int64_t>(1, std::min<std::int64_t>(tokens, 32));  // halves well
  std::int64_t width = (D + V + 1) / 2;
  std::int64_t block = std::max(std::max<std::int64_t>(orders, 1) * 5 * width / 2, 64 + width);
  block = std::min<std::int64_t>(320, block);
  if (tokens <= std::max<std::int64_t>(block, 32)) return std::max<std::int64_t>(tokens, 1);
  std::int64_t most = width <= 64 ? 32 : 48;
  std::int64_t count = (tokens + most - 1) / most;
  return (tokens + count - 1) / count;  // chunks that fill the sequence: 197 are 7 of 29, not 6 of 32 and one of 5
}

// Without decay T tokens cost T^2 D directly, and T D V by way of a state, which has to be cleared and read besides.
inline std::int64_t tokens_counted_directly(std::int64_t D, std::int64_t V) { return (D + V + 1) / 2 + 24; }

}  // namespace lion
