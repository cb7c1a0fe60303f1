// Vectors of the width that this object is compiled for, through the compiler's own vector types: the same
// source becomes SSE2, AVX2, AVX-512, NEON or SVE.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "problem.h"

#ifndef LION_VECTOR_BYTES
#define LION_VECTOR_BYTES 16
#endif

namespace lion {
namespace {  // every object has its own copy: none may borrow another's instructions

template <class T>
struct Simd {
  static constexpr Int width = LION_VECTOR_BYTES / sizeof(T);
  typedef T vec __attribute__((vector_size(LION_VECTOR_BYTES)));
  typedef T unaligned __attribute__((vector_size(LION_VECTOR_BYTES), aligned(sizeof(T)), may_alias));
};

template <class T>
using Vec = typename Simd<T>::vec;

template <class T>
inline constexpr Int W = Simd<T>::width;

template <class T>
inline Vec<T> load(const T* p) {
  return *reinterpret_cast<const typename Simd<T>::unaligned*>(p);
}

template <class T>
inline void store(T* p, Vec<T> x) {
  *reinterpret_cast<typename Simd<T>::unaligned*>(p) = x;
}

template <class T>
inline Vec<T> splat(T x) {
  return x - Vec<T>{};
}

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define LION_SHUFFLE 1
#endif
#endif

#ifdef LION_SHUFFLE
template <class T, Int S, std::size_t... I>
inline T sum_halves(Vec<T> x, std::index_sequence<I...> all) {
  if constexpr (S == 0)
    return x[0];
  else
    return sum_halves<T, S / 2>(x + __builtin_shufflevector(x, x, (Int(I) ^ S)...), all);
}
#endif

// Of a vector's elements, by halves: always in the same order.
template <class T>
inline T sum(Vec<T> x) {
#ifdef LION_SHUFFLE
  return sum_halves<T, W<T> / 2>(x, std::make_index_sequence<W<T>>());
#else
  T part[W<T>];
  store(part, x);
  for (Int half = W<T> / 2; half; half /= 2)
    for (Int i = 0; i < half; ++i) part[i] += part[i + half];
  return part[0];
#endif
}

inline Int round_up(Int n, Int to) { return (n + to - 1) / to * to; }
inline Int round_down(Int n, Int to) { return n / to * to; }

// Rows of scratch matrices start an odd number of cache lines apart, so that a column of them does not
// fall into a few sets of the cache.
template <class T>
inline Int leading(Int columns) {
  constexpr Int line = 64 / sizeof(T) > W<T> ? 64 / sizeof(T) : W<T>;
  Int lines = round_up(columns, line) / line;
  return (lines | 1) * line;
}

#ifdef LION_SHUFFLE
// One stage of a transpose: exchange the off-diagonal S x S blocks of two rows that are S apart.
template <class T, Int S, bool high, std::size_t... I>
inline Vec<T> exchanged(Vec<T> a, Vec<T> b, std::index_sequence<I...>) {
  constexpr Int w = W<T>;
  return __builtin_shufflevector(
      a, b, (high ? ((Int(I) & S) ? w + Int(I) : Int(I) + S) : ((Int(I) & S) ? w + Int(I) - S : Int(I)))...);
}

template <class T, Int S>
inline void transpose_stage(Vec<T> (&x)[W<T>]) {
  if constexpr (S > 0) {
#pragma GCC unroll 16
    for (Int i = 0; i < W<T>; ++i) {
      if (i & S) continue;
      Vec<T> a = x[i], b = x[i + S];
      x[i] = exchanged<T, S, false>(a, b, std::make_index_sequence<W<T>>());
      x[i + S] = exchanged<T, S, true>(a, b, std::make_index_sequence<W<T>>());
    }
    transpose_stage<T, S / 2>(x);
  }
}
#endif

// to [columns, rows] = from [rows, columns], in whole vectors: both must have room for rounded-up sizes, and
// rows beyond `rows` are taken as zeros.
template <class T>
inline void transpose(const T* from, Int from_row, Int rows, Int columns, T* to, Int to_row) {
  constexpr Int w = W<T>;
  for (Int i = 0; i < rows; i += w)
    for (Int j = 0; j < columns; j += w) {
#ifdef LION_SHUFFLE
      Vec<T> x[w];
#pragma GCC unroll 16
      for (Int r = 0; r < w; ++r) x[r] = i + r < rows ? load(from + (i + r) * from_row + j) : Vec<T>{};
      transpose_stage<T, w / 2>(x);
#pragma GCC unroll 16
      for (Int r = 0; r < w; ++r)
        if (j + r < columns) store(to + (j + r) * to_row + i, x[r]);
#else
      for (Int r = 0; r < w; ++r)
        for (Int c = 0; c < w && j + c < columns; ++c)
          to[(j + c) * to_row + i + r] = i + r < rows ? from[(i + r) * from_row + j + c] : T(0);
#endif
    }
}

}  // namespace
}  // namespace lion
