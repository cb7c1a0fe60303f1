// Feature maps of the channels of each head, and their gradients, each in one pass over memory.
#pragma once

#include "decay.h"
#include "memory.h"

namespace lion {
namespace {

inline Vec<float> sigmoid(Vec<float> x) {
  Vec<float> bounded = x > 87.f ? splat(-87.f) : x < -87.f ? splat(87.f) : -x;
  return 1.f / (1.f + exp_bounded(bounded));
}

// Without ever taking the exponential of a positive number.
inline Vec<double> sigmoid(Vec<double> x) {
  Vec<double> small = exp_negative(x < 0 ? x : -x);
  return (x < 0 ? small : splat(1.0)) / (1 + small);
}

// A map of rows [padded], several at once: what a row is divided by is known late, and others need not wait for it.
// What fills up a row is not part of it.
constexpr Int ROWS = 8;

template <class T>
struct Mapped {
  const T *x, *dy;  // dy: only backwards
  T* out;           // may be dy
};

// y = s / |s|, s = x sigmoid(x) + 1/2
template <class T>
class UnitSilu {
 public:
  static Int scratch(Int padded) { return 2 * ROWS * padded; }

  static void forward(const Mapped<T>* rows, Int n, Int D, Int padded, T* s) {
    T inverse[ROWS];
    for (Int r = 0; r < n; ++r) inverse[r] = squares(rows[r], D, padded, s + r * padded, nullptr);
    invert(n, inverse);
    for (Int r = 0; r < n; ++r)
      for (Int j = 0; j < padded; j += W<T>) store(rows[r].out + j, load(s + r * padded + j) * inverse[r]);
  }

  static void backward(const Mapped<T>* rows, Int n, Int D, Int padded, T* s) {
    T inverse[ROWS], along[ROWS];
    T* slope = s + ROWS * padded;
    for (Int r = 0; r < n; ++r) {
      inverse[r] = squares(rows[r], D, padded, s + r * padded, slope + r * padded);
      along[r] = dot(rows[r].dy, s + r * padded, D);
    }
    invert(n, inverse);
    for (Int r = 0; r < n; ++r) {
      Vec<T> scale = splat(inverse[r]), part = splat(along[r] * inverse[r] * inverse[r]);
      for (Int j = 0; j < padded; j += W<T>) {
        Vec<T> y = load(rows[r].dy + j) - load(s + r * padded + j) * part;
        store(rows[r].out + j, y * load(slope + r * padded + j) * scale);
      }
    }
  }

 private:
  // Also s, and how steep it is.
  static T squares(const Mapped<T>& row, Int D, Int padded, T* s, T* slope) {
    Vec<T> total = {};
    for (Int j = 0; j < padded; j += W<T>) {
      Vec<T> x = load(row.x + j), y = sigmoid(x), shifted = x * y + T(0.5);
      store(s + j, shifted);
      if (slope) store(slope + j, y * (1 + x * (1 - y)));
      total += shifted * shifted;
    }
    if (D == padded) return sum<T>(total);
    for (Int j = D; j < padded; ++j) s[j] = 0;
    return dot(s, s, D);
  }

  static void invert(Int n, T* squares) {
    for (Int r = 0; r < n; ++r) squares[r] = 1 / std::max(std::sqrt(squares[r]), T(1e-12));
  }
};

// y = elu(x) + 1: x + 1 above 0, e^x below
template <class T>
class EluPlusOne {
 public:
  static Int scratch(Int) { return 0; }

  static void forward(const Mapped<T>* rows, Int n, Int, Int padded, T*) {
    for (Int r = 0; r < n; ++r)
      for (Int j = 0; j < padded; j += W<T>) {
        Vec<T> x = load(rows[r].x + j);
        store(rows[r].out + j, x > 0 ? x + 1 : below(x));
      }
  }

  static void backward(const Mapped<T>* rows, Int n, Int, Int padded, T*) {
    for (Int r = 0; r < n; ++r)
      for (Int j = 0; j < padded; j += W<T>) {
        Vec<T> x = load(rows[r].x + j);
        store(rows[r].out + j, load(rows[r].dy + j) * (x > 0 ? splat(T(1)) : below(x)));
      }
  }

 private:
  static Vec<T> below(Vec<T> x) { return exp_negative(x > 0 ? Vec<T>{} : x); }
};

template <class T, class Map>
class FeatureRows {
 public:
  explicit FeatureRows(const Features& f) : f_(f), padded_(round_up(f.D, W<T>)) {}

  void run(Parallel parallel) {
    parallel((f_.B * f_.T + TOKENS - 1) / TOKENS, f_.threads,
             [](void* self, Int i) { static_cast<FeatureRows*>(self)->tokens(i * TOKENS); }, this);
  }

 private:
  static constexpr Int TOKENS = 64;  // of one task

  struct Place {
    Int b, t, h;
  };

  void tokens(Int first) {
    thread_local Buffer memory;
    Int count = 3 * ROWS * padded_ + Map::scratch(padded_);
    T* room = static_cast<T*>(memory.reserve(static_cast<std::size_t>(count) * sizeof(T)));
    Place place = {first / f_.T, first % f_.T, 0};
    for (Int left = std::min(TOKENS, f_.B * f_.T - first) * f_.H; left > 0; left -= ROWS)
      some(place, std::min(ROWS, left), room);
  }

  // The next n rows; where vectors cannot read or write them, by way of copies.
  void some(Place& place, Int n, T* room) {
    Mapped<T> rows[ROWS];
    HeadRows out[ROWS];
    for (Int r = 0; r < n; ++r) {
      T* copies = room + 3 * r * padded_;
      rows[r].x = read(f_.x, place, copies);
      rows[r].dy = f_.backward ? read(f_.dy, place, copies + padded_) : nullptr;
      out[r] = row(f_.out, place);
      rows[r].out = in_place() ? out[r].template row<T>(0) : copies + 2 * padded_;
      if (++place.h == f_.H) place = place.t + 1 < f_.T ? Place{place.b, place.t + 1, 0} : Place{place.b + 1, 0, 0};
    }
    (f_.backward ? Map::backward : Map::forward)(rows, n, f_.D, padded_, room + 3 * ROWS * padded_);
    const Int here = 0;
    if (!in_place())
      for (Int r = 0; r < n; ++r) scatter(rows[r].out, 0, &here, 1, f_.D, out[r]);
  }

  bool in_place() const { return f_.dtype != BFLOAT16 && f_.D == padded_; }

  HeadRows row(const Rows& rows, const Place& x) const {
    bool half = f_.dtype == BFLOAT16;
    Int at = x.b * rows.batch + x.t * rows.token + x.h * rows.head;
    return {static_cast<char*>(rows.data) + at * (half ? 2 : Int(sizeof(T))), 0, half};
  }

  const T* read(const Rows& rows, const Place& place, T* copy) const {
    const Int here = 0;
    HeadRows from = row(rows, place);
    if (in_place()) return from.row<T>(0);
    gather<T>(from, &here, 1, f_.D, nullptr, copy, 0);
    return copy;
  }

  const Features& f_;
  Int padded_;
};

template <class T>
void run_features(const Features& f, Parallel parallel) {
  if (f.map == UNIT_SILU)
    FeatureRows<T, UnitSilu<T>>(f).run(parallel);
  else
    FeatureRows<T, EluPlusOne<T>>(f).run(parallel);
}

void features(const Features& f, Parallel parallel) {
  f.dtype == FLOAT64 ? run_features<double>(f, parallel) : run_features<float>(f, parallel);
}

}  // namespace
}  // namespace lion
