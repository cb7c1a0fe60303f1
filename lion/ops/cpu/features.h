// The shifted, normalised SiLU of a head's channels, and its gradient, each in one pass over memory.
#pragma once

#include "decay.h"
#include "memory.h"

namespace lion {
namespace {

inline Vec<float> sigmoid(Vec<float> x) {
  Vec<float> bounded = x < -87.f ? splat(-87.f) : x > 87.f ? splat(87.f) : x;
  return 1.f / (1.f + exp_bounded(-bounded));
}

// Without ever taking the exponential of a positive number.
inline Vec<double> sigmoid(Vec<double> x) {
  Vec<double> small = exp_negative(x < 0 ? x : -x);
  return (x < 0 ? small : splat(1.0)) / (1 + small);
}

// y = s / |s|, s = x sigmoid(x) + 1/2
template <class T>
class FeatureRows {
 public:
  explicit FeatureRows(const Features& f) : f_(f), padded_(round_up(f.D, W<T>)) {}

  void run(Parallel parallel) {
    parallel((f_.B * f_.T + TOKENS - 1) / TOKENS, f_.threads,
             [](void* self, Int i) { static_cast<FeatureRows*>(self)->tokens(i * TOKENS); }, this);
  }

 private:
  static constexpr Int TOKENS = 64;  // of one task

  void tokens(Int first) {
    thread_local Buffer memory;
    T* rows = static_cast<T*>(memory.reserve(static_cast<std::size_t>(5 * padded_) * sizeof(T)));
    for (Int i = first; i < std::min(first + TOKENS, f_.B * f_.T); ++i)
      for (Int h = 0; h < f_.H; ++h) row(i / f_.T, i % f_.T, h, rows);
  }

  void row(Int b, Int t, Int h, T* rows) {
    const T* x = read(f_.x, b, t, h, rows);
    T *gate = rows + padded_, *s = rows + 2 * padded_;
    Vec<T> squares = {};
    for (Int j = 0; j < padded_; j += W<T>) {
      Vec<T> v = load(x + j), y = sigmoid(v), shifted = v * y + T(0.5);
      store(gate + j, y);
      store(s + j, shifted);
      squares += shifted * shifted;
    }
    if (f_.D < padded_) {  // what fills up the row is not part of it
      for (Int j = f_.D; j < padded_; ++j) s[j] = 0;
      squares = Vec<T>{};
      for (Int j = 0; j < padded_; j += W<T>) squares += load(s + j) * load(s + j);
    }
    T inverse = 1 / std::max(std::sqrt(sum<T>(squares)), T(1e-12));
    HeadRows to = rows_of(f_.out, b, h);
    T* out = in_place(to) ? to.row<T>(t) : rows + 3 * padded_;
    if (f_.backward) {
      const T* g = read(f_.dy, b, t, h, rows + 4 * padded_);
      Vec<T> along = splat(dot(g, s, f_.D) * inverse * inverse);
      for (Int j = 0; j < padded_; j += W<T>) {
        Vec<T> y = load(gate + j), slope = y * (1 + load(x + j) * (1 - y));
        store(out + j, (load(g + j) - load(s + j) * along) * slope * inverse);
      }
    } else {
      for (Int j = 0; j < padded_; j += W<T>) store(out + j, load(s + j) * inverse);
    }
    if (!in_place(to)) scatter(out, 0, &t, 1, f_.D, to);
  }

  bool in_place(const HeadRows& rows) const { return lies_evenly<T>(rows, f_.D, true); }

  HeadRows rows_of(const Rows& rows, Int b, Int h) const {
    bool half = f_.dtype == BFLOAT16;
    Int size = half ? 2 : sizeof(T);
    return {static_cast<char*>(rows.data) + (b * rows.batch + h * rows.head) * size, rows.token * size, half};
  }

  // A row where it is, or if that is not how vectors can read it, a copy.
  const T* read(const Rows& rows, Int b, Int t, Int h, T* room) const {
    HeadRows from = rows_of(rows, b, h);
    if (in_place(from)) return from.row<T>(t);
    gather<T>(from, &t, 1, f_.D, nullptr, room, 0);
    return room;
  }

  const Features& f_;
  Int padded_;
};

void features(const Features& f, Parallel parallel) {
  if (f.dtype == FLOAT64)
    FeatureRows<double>(f).run(parallel);
  else
    FeatureRows<float>(f).run(parallel);
}

}  // namespace
}  // namespace lion
