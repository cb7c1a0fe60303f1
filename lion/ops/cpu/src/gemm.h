// The one matrix product that everything here is made of, in register tiles.
#pragma once

#include "simd.h"

namespace lion {
namespace {

// Rows and vectors of the tile that is kept in registers, of which AVX2 has 16 and the others 32.
#if LION_VECTOR_BYTES == 64
constexpr Int TILE_ROWS = 12, TILE_VECTORS = 2;
#elif defined(__aarch64__)
constexpr Int TILE_ROWS = 6, TILE_VECTORS = 4;
#elif LION_VECTOR_BYTES == 32
constexpr Int TILE_ROWS = 6, TILE_VECTORS = 2;
#else
constexpr Int TILE_ROWS = 4, TILE_VECTORS = 2;
#endif

// exp(log) in two parts, x -> grow x + same x. Near 1 `same` is 1 and `grow` is expm1(log), elsewhere `grow` is what
// `same` was rounded by: repeated a million times, a decay must not drift.
template <class T>
struct Factor {
  T grow, same;
  T operator()(T x) const { return x * grow + x * same; }
  Vec<T> operator()(Vec<T> x) const { return x * grow + x * same; }
};

// keep(old) + more. A state that forgets slowly is a sum over thousands of chunks: what each addition rounds off is
// remembered (Kahan's summation), so that the error does not grow with the length of the sequence.
template <class T>
inline Vec<T> add_exactly(Vec<T> old, Factor<T> keep, Vec<T> more, T* lost) {
  if (keep.same != 1) {
    store(lost, Vec<T>{});
    return more + keep(old);
  }
  Vec<T> change = old * keep.grow + more - load(lost);
  Vec<T> total = old + change;
  store(lost, (total - old) - change);
  return total;
}

template <class T>
struct Product {  // A [M, K] B [K, N]; B's rows are contiguous, A may have any strides
  Int K = 0;      // 0: no product at all
  const T* a = nullptr;
  Int a_row = 0, a_column = 0;
  const T* b = nullptr;
  Int b_row = 0;
};

// Rows that will be needed soon, fetched into the cache a few at a time while products are computed.
class Prefetch {
 public:
  void add(const char* data, Int bytes) {
    if (count_ < ROOM) rows_[count_++] = {data, bytes};
  }
  void clear() { count_ = next_ = 0; }
  void step() {
    if (next_ == count_) return;
    Row row = rows_[next_++];
    for (Int i = 0; i < row.bytes; i += 64) __builtin_prefetch(row.data + i, 0, 2);
  }

 private:
  struct Row {
    const char* data;
    Int bytes;
  };
  static constexpr Int ROOM = 1024;
  Row rows_[ROOM];
  Int count_ = 0, next_ = 0;
};

// C [M, N] = keep C + row * (A1 B1) + A2 B2. N is rounded up to whole vectors: B and C have room for that.
template <class T>
struct Sum {
  T* c = nullptr;
  Int c_row = 0;
  Product<T> scaled = {};  // its rows are multiplied by `row`
  const T* row = nullptr;
  Product<T> plain = {};
  bool fresh = true;  // C held nothing
  Factor<T> keep = {0, 1};
  const T* last_row = nullptr;  // the rows of the whole sum are multiplied by this
  Prefetch* prefetch = nullptr;
  T* lost = nullptr;  // like C: what rounding has taken from it so far, to be given back
};

template <class T, Int R, Int N>
inline void accumulate(const Product<T>& p, Int first_row, Int first_column, Vec<T> (&sums)[R][N]) {
  const T* a = p.a + first_row * p.a_row;
  const T* b = p.b + first_column;
  const Int a_row = p.a_row, a_column = p.a_column, b_row = p.b_row;
  for (Int k = p.K; k > 0; --k) {
    Vec<T> bs[N];
#pragma GCC unroll 4
    for (Int n = 0; n < N; ++n) bs[n] = load(b + n * W<T>);
#pragma GCC unroll 12
    for (Int r = 0; r < R; ++r) {
      Vec<T> as = splat(a[r * a_row]);
#pragma GCC unroll 4
      for (Int n = 0; n < N; ++n) sums[r][n] += as * bs[n];
    }
    a += a_column, b += b_row;
  }
}

template <class T, Int R, Int N>
inline void tile(const Sum<T>& s, Int first_row, Int first_column) {
  Vec<T> sums[R][N] = {};
  accumulate<T, R, N>(s.scaled, first_row, first_column, sums);
  if (s.scaled.K && s.row)
#pragma GCC unroll 12
    for (Int r = 0; r < R; ++r) {
      Vec<T> scale = splat(s.row[first_row + r]);
#pragma GCC unroll 4
      for (Int n = 0; n < N; ++n) sums[r][n] *= scale;
    }
  accumulate<T, R, N>(s.plain, first_row, first_column, sums);
  T* c = s.c + first_row * s.c_row + first_column;
  const Int c_row = s.c_row;
  if (!s.fresh) {
    const Factor<T> keep = s.keep;
    T* lost = s.lost ? s.lost + first_row * c_row + first_column : nullptr;
#pragma GCC unroll 12
    for (Int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (Int n = 0; n < N; ++n) {
        Int at = r * c_row + n * W<T>;
        sums[r][n] = lost ? add_exactly(load(c + at), keep, sums[r][n], lost + at) : sums[r][n] + keep(load(c + at));
      }
  }
  if (s.last_row)
#pragma GCC unroll 12
    for (Int r = 0; r < R; ++r) {
      Vec<T> scale = splat(s.last_row[first_row + r]);
#pragma GCC unroll 4
      for (Int n = 0; n < N; ++n) sums[r][n] *= scale;
    }
#pragma GCC unroll 12
  for (Int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (Int n = 0; n < N; ++n) store(c + r * c_row + n * W<T>, sums[r][n]);
}

template <class T, Int R, Int N>
inline void tile_of(Int rows, const Sum<T>& s, Int first_row, Int first_column) {
  if constexpr (R > 0) {
    if (rows == R)
      tile<T, R, N>(s, first_row, first_column);
    else
      tile_of<T, R - 1, N>(rows, s, first_row, first_column);
  }
}

template <class T, Int N>
inline void panel(Int M, const Sum<T>& s, Int first_column) {
  // The rows in as few tiles as they need, of sizes as even as can be.
  Int count = (M + TILE_ROWS - 1) / TILE_ROWS;
  for (Int n = 0, row = 0; n < count; ++n) {
    Int rows = (M - row + count - n - 1) / (count - n);
    if (s.prefetch) s.prefetch->step(), s.prefetch->step(), s.prefetch->step();
    tile_of<T, TILE_ROWS, N>(rows, s, row, first_column);
    row += rows;
  }
}

template <class T>
__attribute__((noinline)) void multiply(Int M, Int N, const Sum<T>& s) {
  constexpr Int wide = TILE_VECTORS * W<T>;
  Int n = 0;
  for (; n + wide <= round_up(N, W<T>); n += wide) panel<T, TILE_VECTORS>(M, s, n);
  for (; n < N; n += W<T>) panel<T, 1>(M, s, n);
}

}  // namespace
}  // namespace lion
