// Scratch memory, and rows of tensors in and out of it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <new>

#include "problem.h"
#include "simd.h"

namespace lion {
namespace {

// Uninitialised memory on whole cache lines, that only ever grows.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { std::free(data_); }

  void* reserve(std::size_t bytes) {
    if (bytes > size_) {
      std::free(data_);
      data_ = nullptr, size_ = 0;
      std::size_t rounded = (bytes + 63) / 64 * 64;
      if (posix_memalign(&data_, 64, rounded)) throw std::bad_alloc();
      size_ = rounded;
    }
    return data_;
  }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

// Hands out arena of a buffer. Run once without memory it counts how much is needed.
class Arena {
 public:
  explicit Arena(void* base = nullptr) : base_(static_cast<char*>(base)) {}

  template <class T>
  T* take(Int count) {
    T* piece = base_ ? reinterpret_cast<T*>(base_ + used_) : nullptr;
    used_ += (static_cast<std::size_t>(count) * sizeof(T) + 63) / 64 * 64;
    return piece;
  }

  std::size_t used() const { return used_; }

 private:
  char* base_;
  std::size_t used_ = 0;
};

inline float widen(std::uint16_t x) {
  std::uint32_t bits = static_cast<std::uint32_t>(x) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

inline std::uint16_t narrow(float x) {  // to nearest even, as torch does; NaN stays NaN
  std::uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Vectors of bfloat16, by the same rules.
typedef std::uint32_t FloatBits __attribute__((vector_size(LION_VECTOR_BYTES)));
typedef std::uint16_t Halves __attribute__((vector_size(LION_VECTOR_BYTES / 2)));

inline Vec<float> load_half(const std::uint16_t* from) {
  Halves x;
  std::memcpy(&x, from, sizeof(x));
  return reinterpret_cast<Vec<float>>(__builtin_convertvector(x, FloatBits) << 16);
}

inline void store_half(std::uint16_t* to, Vec<float> x) {
  FloatBits bits = reinterpret_cast<FloatBits>(x), high = bits >> 16;
  FloatBits rounded = (bits + 0x7fff + (high & 1)) >> 16;
  Halves y = __builtin_convertvector((bits & 0x7fffffff) > 0x7f800000 ? high | 0x40 : rounded, Halves);
  std::memcpy(to, &y, sizeof(y));
}

template <class T>
inline void widen_row(const std::uint16_t* from, Int columns, T* to) {
  Int j = 0;
  if constexpr (std::is_same_v<T, float>)
    for (; j + W<float> <= columns; j += W<float>) store(to + j, load_half(from + j));
  for (; j < columns; ++j) to[j] = widen(from[j]);
}

template <class T>
inline void narrow_row(const T* from, Int columns, std::uint16_t* to, T scale = 1) {
  Int j = 0;
  if constexpr (std::is_same_v<T, float>)
    for (; j + W<float> <= columns; j += W<float>) store_half(to + j, load(from + j) * scale);
  for (; j < columns; ++j) to[j] = narrow(static_cast<float>(from[j] * scale));
}

template <class T>
inline T* at(const Rows& x, Int b, Int t, Int h) {
  return static_cast<T*>(x.data) + b * x.batch + t * x.token + h * x.head;
}

// A head's rows in a tensor of the caller's dtype, by token.
struct HeadRows {
  char* data;
  Int stride;  // bytes
  bool half;   // bfloat16

  template <class T>
  T* row(Int token) const {
    return reinterpret_cast<T*>(data + token * stride);
  }
};

template <class T>
inline HeadRows rows_of(const Rows& x, const Problem& p, Int b, Int h, bool wide = false) {
  bool half = p.dtype == BFLOAT16 && !wide;
  Int size = half ? 2 : sizeof(T);
  return {static_cast<char*>(x.data) + (b * x.batch + h * x.head) * size, x.token * size, half};
}

// Rows in memory as a matrix's: where they are if they lie evenly and end with a whole vector, else copied.
template <class T>
struct Matrix {
  const T* data;
  Int row;
};

template <class T>
inline bool lies_evenly(const HeadRows& x, Int columns, bool in_order) {
  return in_order && !x.half && columns % W<T> == 0;
}

template <class T>
inline Int step_between(const HeadRows& x, const Int* tokens, Int n) {
  return n > 1 ? (tokens[1] - tokens[0]) * x.stride / static_cast<Int>(sizeof(T)) : 0;
}

// to [n, columns rounded up to vectors] = the rows of some tokens, times a scale each (null: 1); the rest is 0
template <class T>
inline void gather(const HeadRows& from, const Int* tokens, Int n, Int columns, const T* scale, T* to, Int to_row) {
  Int whole = round_down(columns, W<T>), padded = round_up(columns, W<T>);
  for (Int i = 0; i < n; ++i, to += to_row) {
    if (whole < padded) store(to + whole, Vec<T>{});
    if (from.half) {
      widen_row(from.row<std::uint16_t>(tokens[i]), columns, to);
    } else {
      const T* x = from.row<T>(tokens[i]);
      for (Int j = 0; j < whole; j += W<T>) store(to + j, load(x + j));
      for (Int j = whole; j < columns; ++j) to[j] = x[j];
    }
    if (scale) {
      Vec<T> s = splat(scale[i]);
      for (Int j = 0; j < padded; j += W<T>) store(to + j, load(to + j) * s);
    }
  }
}

// The rows of some tokens = from [n, columns]
template <class T>
inline void scatter(const T* from, Int from_row, const Int* tokens, Int n, Int columns, const HeadRows& to) {
  for (Int i = 0; i < n; ++i, from += from_row) {
    if (to.half)
      narrow_row(from, columns, to.row<std::uint16_t>(tokens[i]));
    else
      std::copy(from, from + columns, to.row<T>(tokens[i]));
  }
}

template <class T>
inline void scale_rows(T* x, Int row, Int n, Int columns, const T* scale) {
  for (Int i = 0; i < n; ++i, x += row) {
    Vec<T> s = splat(scale[i]);
    for (Int j = 0; j < columns; j += W<T>) store(x + j, load(x + j) * s);
  }
}

template <class T>
inline T dot(const T* x, const T* y, Int n) {  // of padded rows
  Vec<T> total = {};
  for (Int j = 0; j < n; j += W<T>) total += load(x + j) * load(y + j);
  return sum<T>(total);
}

// Sums that are built up over several visits, then handed over. They grow in the result itself if that has
// the precision for it, else in memory of their own.
template <class T>
struct Accumulator {
  HeadRows out;
  T* own = nullptr;  // [tokens, columns]
  Int columns = 0, first_token = 0;

  // One more visit's row, times `scale`. The last visit multiplies all by `final`.
  void add(Int token, const T* x, T scale, bool first, bool last, T final = 1) const {
    if (out.half && first && last) return narrow_row(x, columns, out.row<std::uint16_t>(token), scale * final);
    T* sums = own ? own + (token - first_token) * columns : out.row<T>(token);
    Int whole = round_down(columns, W<T>);
    if (first) {
      for (Int j = 0; j < whole; j += W<T>) store(sums + j, load(x + j) * scale * final);
      for (Int j = whole; j < columns; ++j) sums[j] = x[j] * scale * final;
    } else {
      for (Int j = 0; j < whole; j += W<T>) store(sums + j, (load(sums + j) + load(x + j) * scale) * final);
      for (Int j = whole; j < columns; ++j) sums[j] = (sums[j] + x[j] * scale) * final;
    }
    if (last && own) scatter(sums, 0, &token, 1, columns, out);
  }
};

}  // namespace
}  // namespace lion
