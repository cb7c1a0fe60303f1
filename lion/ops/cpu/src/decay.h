// Decays: as factors, as the mask of a block, and their gradients.
//
// A walk goes through the tokens of a block, in some order, and pays a cost when it leaves a token. Row i of
// its mask is what has become, on arrival at i, of a weight of 1 put down at each token visited before. So a
// row is the row before it, decayed once more: no exponent is a difference of sums, nothing can cancel,
// overflow or be undefined, whatever the decays.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "gemm.h"
#include "problem.h"

namespace lion {
namespace {

template <class T>
inline Factor<T> factor(T log) {
  double whole = std::exp(static_cast<double>(log));
  if (log > T(-0.5)) return {std::expm1(log), 1};
  return {static_cast<T>(whole - static_cast<T>(whole)), static_cast<T>(whole)};
}

// A polynomial, its coefficients from the highest power down. (A loop over a list of them would go through memory.)
template <class... Rest>
inline Vec<float> polynomial(Vec<float> x, float first, Rest... rest) {
  Vec<float> y = splat(first);
  ((y = y * x + static_cast<float>(rest)), ...);
  return y;
}

// e^x for |x| <= 87, to a unit in the last place: 2^n times a polynomial (Chebyshev's, of degree 6) of what is left.
// Beyond that it is some number that nobody uses: the exponents are unsigned, so that they may wrap around.
inline Vec<float> exp_bounded(Vec<float> x) {
  using V = Vec<float>;
  typedef std::uint32_t Bits __attribute__((vector_size(LION_VECTOR_BYTES)));
  constexpr float ROUNDS = 12582912.f;  // 1.5 * 2^23: what is added to it has no room for a fraction
  V shifted = x * 1.44269504f + ROUNDS, whole = shifted - ROUNDS;
  V rest = x - whole * 0.693359375f + whole * 2.12194440e-4f;
  V power = polynomial(rest, 1.394111896e-3f, 8.375134319e-3f, 4.166635126e-2f, 1.666641533e-1f, 0.5f, 1.f, 1.f);
  return reinterpret_cast<V>(reinterpret_cast<Bits>(power) + (reinterpret_cast<Bits>(shifted) << 23));
}

// The same as `factor` for decays that differ from token to token, where nothing repeats that could drift: Taylor's
// series near 0, e^x elsewhere, both good to a unit or so in the last place and several times as fast.
inline Vec<float> exp_negative(Vec<float> x) {
  Vec<float> far = exp_bounded(x > -87.f ? x : splat(-87.f));
  return x > -87.f ? far : Vec<float>{};  // what is smaller counts as nothing
}

inline Vec<double> exp_negative(Vec<double> x) {
  for (Int j = 0; j < W<double>; ++j) x[j] = std::exp(x[j]);
  return x;
}

inline void exp_parts(Vec<float> x, Vec<float>& grow, Vec<float>& same) {
  using V = Vec<float>;
  V near = polynomial(x, 1.f / 362880, 1.f / 40320, 1.f / 5040, 1.f / 720, 1.f / 120, 1.f / 24, 1.f / 6, 0.5f);
  near = near * x * x + x;  // expm1
  same = x > -0.5f ? splat(1.f) : exp_negative(x);
  grow = x > -0.5f ? near : V{};
}

inline void exp_parts(Vec<double> x, Vec<double>& grow, Vec<double>& same) {
  for (Int j = 0; j < W<double>; ++j) {
    Factor<double> f = factor(x[j]);
    grow[j] = f.grow, same[j] = f.same;
  }
}

// The decay exp(x) of x <= 0 in one number: exp(x) - 1 where x is near 0, from NEARLY_ONE on, and exp(x) elsewhere. (So
// near that the exponent of 2 is 0.)
template <class T>
inline constexpr T NEARLY_ONE = T(-0.3465);

inline Vec<float> decay_factor(Vec<float> x) {
  using V = Vec<float>;
  typedef std::uint32_t Bits __attribute__((vector_size(LION_VECTOR_BYTES)));
  constexpr float ROUNDS = 12582912.f;  // as in exp_bounded
  V bounded = x > -87.f ? x : splat(-87.f), shifted = bounded * 1.44269504f + ROUNDS, whole = shifted - ROUNDS;
  V rest = bounded - whole * 0.693359375f + whole * 2.12194440e-4f;
  V power = polynomial(rest, 1.f / 5040, 1.f / 720, 1.f / 120, 1.f / 24, 1.f / 6, 0.5f) * (rest * rest) + rest;
  V scale = reinterpret_cast<V>((reinterpret_cast<Bits>(shifted) << 23) + 0x3f800000u);
  V result = power * scale + (x > NEARLY_ONE<float> ? V{} : scale);
  return x > -87.f ? result : V{};  // what is smaller counts as nothing
}

inline Vec<double> decay_factor(Vec<double> x) {
  for (Int j = 0; j < W<double>; ++j) x[j] = x[j] > NEARLY_ONE<double> ? std::expm1(x[j]) : std::exp(x[j]);
  return x;
}

// A vector of logs, the last one filled up with 0.
template <class T>
inline Vec<T> load_logs(const T* logs, Int n) {
  if (n >= W<T>) return load(logs);
  T piece[W<T>] = {};
  std::copy(logs, logs + n, piece);
  return load(piece);
}

template <class T>
inline void to_factors(const T* logs, Int n, Factor<T>* to) {
  for (Int i = 0; i < n; i += W<T>) {
    Vec<T> grow, same;
    exp_parts(load_logs(logs + i, n - i), grow, same);
    for (Int j = 0; j < std::min(W<T>, n - i); ++j) to[i + j] = {grow[j], same[j]};
  }
}

// grow, same [n rounded up to vectors]
template <class T>
inline void exp_parts(const T* logs, Int n, T* grow, T* same) {
  for (Int i = 0; i < n; i += W<T>) {
    Vec<T> grows, sames;
    exp_parts(load_logs(logs + i, n - i), grows, sames);
    store(grow + i, grows), store(same + i, sames);
  }
}

// Products of many decays pass through the denormals on their way to 0, where some processors crawl.
class NoDenormals {
#if defined(__SSE2__)
 public:
  NoDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8000); }
  ~NoDenormals() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#else
 public:
  ~NoDenormals() {}
#endif
};

// How weights enter, cross and leave a block of n tokens that a walk goes through from the first to the last.
template <class T>
struct Crossing {
  T* arrive;        // [n] from the border to each token
  T* leave;         // [n] from each token to the border at the other end
  Factor<T> cross;  // from border to border
};

// cost: log of leaving each token. `early`: the walk pays for a token before it gets there, not after. That is
// the transpose of the walk the other way.
template <class T>
inline void cross(const T* cost, const Factor<T>* factors, Int n, bool early, Crossing<T>& c) {
  double total = 0;
  T there = 1, back = 1;
  for (Int i = 0, j = n - 1; i < n; ++i, --j) {  // both at once: each is a chain of dependent steps
    total += cost[i];
    T past = factors[i](there), before = factors[j](back);
    c.arrive[i] = early ? past : there;
    c.leave[j] = early ? back : before;
    there = past, back = before;
  }
  c.cross = factor(static_cast<T>(total));
}

// A walk through all tokens of a block. Without an order it goes from the first to the last or, `reversed`,
// from the last to the first.
template <class T>
struct Walk {
  const Factor<T>* factors;             // [n], by token
  const std::int32_t* order = nullptr;  // [n] tokens
  bool reversed = false;
  const T* query = nullptr;  // [n] weights of the rows and columns; null is 1
  const T* key = nullptr;

  Int token(Int step, Int n) const {
    Int place = reversed ? n - 1 - step : step;
    return order ? order[place] : place;
  }

  // Calls visit(i, j, weights) for every token i in turn and every vector j of its row of the mask that is not
  // all zero. `row` [n] is scratch.
  template <class Visit>
  void rows(Int n, T* row, Visit visit) const {
    NoDenormals guard;
    Int padded = round_up(n, W<T>);
    for (Int j = 0; j < padded; j += W<T>) store(row + j, Vec<T>{});
    for (Int step = 0; step < n; ++step) {
      Int i = token(step, n);
      Span span = seen_from(i, padded);
      const Factor<T> decay = factors[i];
      for (Int j = span.first; j < span.last; j += W<T>) {
        Vec<T> weights = load(row + j);
        visit(i, j, weights);
        store(row + j, decay(weights));
      }
      row[i] = decay(T(1));
    }
  }

  struct Span {
    Int first, last;
  };
  // The vectors with all that was visited before i, and i: in order, only what lies behind.
  Span seen_from(Int i, Int padded) const {
    return {!order && reversed ? round_down(i, W<T>) : 0, !order && !reversed ? round_up(i + 1, W<T>) : padded};
  }

  Vec<T> weighted(Vec<T> x, Int i, Int j) const {
    if (key) x *= load(key + j);
    return query ? x * query[i] : x;
  }
};

// mask [n, n] += the walk's. The padding of a row's last vector stays 0.
template <class T>
inline void add_mask(const Walk<T>& walk, Int n, T* mask, Int mask_row, T* row) {
  walk.rows(n, row, [&](Int i, Int j, Vec<T> x) {
    T* to = mask + i * mask_row + j;
    store(to, load(to) + walk.weighted(x, i, j));
  });
}

// The gradient of the cost of leaving each token, added to grad [n]: what passes over that edge, sum of
// scores_ij mask_ij over all i after it and all j before it. products [n, n] is scores times their gradient,
// passing [n, n] and row [n] are scratch.
template <class T>
inline void add_cost_grad(const Walk<T>& walk, Int n, const T* products, Int product_row, T* passing, Int passing_row,
                          T* row, T* grad) {
  walk.rows(n, row, [&](Int i, Int j, Vec<T> x) {
    store(passing + i * passing_row + j, walk.weighted(x, i, j) * load(products + i * product_row + j));
  });
  // Back through the walk, collecting what arrives; a token that is left behind takes its own weight with it.
  Int padded = round_up(n, W<T>);
  for (Int j = 0; j < padded; j += W<T>) store(row + j, Vec<T>{});
  for (Int step = n - 1; step > 0; --step) {
    Int i = walk.token(step, n);
    auto span = walk.seen_from(i, padded);
    row[i] = 0;
    const T* from = passing + i * passing_row;
    Vec<T> total = {};
    for (Int j = span.first; j < span.last; j += W<T>) {
      Vec<T> x = load(row + j) + load(from + j);
      store(row + j, x);
      total += x;
    }
    grad[walk.token(step - 1, n)] += sum<T>(total);
  }
}

// Gates: the same operator with scaled keys and other costs, so that no exponent is positive (docs/maths.md).
// In the order of the walk, n tokens; log_gain in, and costs f and b in and out. top is the largest exponent
// that reaches a token, -inf if none does; key the factors of the keys; ends the log scales of states.
template <class T>
struct Ends {  // of the forward walk and of the reverse walk
  static constexpr T nothing = -std::numeric_limits<T>::infinity();
  T entering[2] = {nothing, nothing}, leaving[2] = {nothing, nothing};
};

template <class T>
inline void absorb_gain(const T* log_gain, Int n, Int direction, T* f, T* b, T* top, T* key, Ends<T>& ends) {
  constexpr T nothing = Ends<T>::nothing;
  for (Int i = 0; i < n; ++i) top[i] = log_gain[i];
  if (direction & FORWARD) {
    T best = ends.entering[0];
    for (Int i = 0; i < n; ++i) {
      top[i] = std::fmax(top[i], best);
      best = std::fmax(best, log_gain[i]) + f[i];
    }
    ends.leaving[0] = best;
  }
  if (direction & REVERSE) {
    T best = ends.entering[1];
    for (Int i = n - 1; i >= 0; --i) {
      top[i] = std::fmax(top[i], best);
      best = std::fmax(best, log_gain[i]) + b[i];
    }
    ends.leaving[1] = best;
  }
  auto finite = [](T x) { return x == nothing ? T(0) : x; };
  for (Int i = 0; i < n; ++i) {
    T here = finite(top[i]);
    key[i] = std::exp(log_gain[i] - here);
    if (top[i] == nothing) continue;  // it has nothing to pass on, no matter the cost
    f[i] += here - finite(i + 1 < n ? top[i + 1] : ends.leaving[0]);
    b[i] += here - finite(i > 0 ? top[i - 1] : ends.leaving[1]);
  }
}

}  // namespace
}  // namespace lion
