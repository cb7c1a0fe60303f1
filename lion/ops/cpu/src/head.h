// One head of one sequence: which tokens it has, in which order, what they cost, and how it is cut into chunks.
#pragma once

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <vector>

#include "chunk_size.h"
#include "decay.h"
#include "memory.h"

namespace lion {
namespace {

// The sequences of a call, and the tokens of each in the orders that are walked, without the masked ones.
class Sequences {
 public:
  struct Sequence {
    Int row, start, length;                        // where it is in the batch
    Int tokens;                                    // how many are real
    std::vector<std::vector<std::int32_t>> lists;  // by order; empty: all of them, as they come
  };

  explicit Sequences(const Problem& p) {
    if (p.sequences && (p.cu_seqlens[0] != 0 || p.cu_seqlens[p.sequences] != p.T))
      throw std::out_of_range("cu_seqlens");  // what no sequence covers would not be written
    for (Int s = 0; s < p.sequences; ++s)
      if (p.cu_seqlens[s] > p.cu_seqlens[s + 1]) throw std::out_of_range("cu_seqlens");  // so all are from 0 to T
    if ((p.mask.data || p.order) && p.T > std::numeric_limits<std::int32_t>::max()) throw std::length_error("tokens");
    Int count = p.sequences ? p.sequences : p.B;
    for (Int s = 0; s < count; ++s) {
      Sequence x = p.sequences ? Sequence{0, p.cu_seqlens[s], p.cu_seqlens[s + 1] - p.cu_seqlens[s], 0, {}}
                               : Sequence{s, 0, p.T, 0, {}};
      x.tokens = x.length;
      if (p.mask.data || p.order) {
        for (Int o = 0; o < std::max<Int>(p.orders, 1); ++o) x.lists.push_back(list(p, x, o));
        x.tokens = static_cast<Int>(x.lists[0].size());
      }
      if (x.tokens) all_.push_back(std::move(x));
    }
  }

  Int size() const { return static_cast<Int>(all_.size()); }
  const Sequence& operator[](Int i) const { return all_[static_cast<std::size_t>(i)]; }
  Int longest() const {
    Int most = 0;
    for (const Sequence& x : all_) most = std::max(most, x.tokens);
    return most;
  }

 private:
  static std::vector<std::int32_t> list(const Problem& p, const Sequence& x, Int o) {
    std::vector<std::int32_t> tokens;
    std::vector<bool> met(p.order ? static_cast<std::size_t>(x.length) : 0);
    tokens.reserve(static_cast<std::size_t>(x.length));
    for (Int place = x.start; place < x.start + x.length; ++place) {
      Int t = p.order ? p.order[o * p.T + place] : place;
      if (t < x.start || t >= x.start + x.length) throw std::out_of_range("orders");
      if (p.order) {  // a token that comes twice leaves another one out
        std::size_t own = static_cast<std::size_t>(t - x.start);
        if (met[own]) throw std::out_of_range("orders");
        met[own] = true;
      }
      if (!p.mask.data || *at<bool>(p.mask, x.row, t, 0)) tokens.push_back(static_cast<std::int32_t>(t));
    }
    return tokens;
  }

  std::vector<Sequence> all_;
};

inline Int chunk_of(const Problem& p, Int tokens) {
  return p.chunk ? p.chunk : chunk_tokens(tokens, p.D, p.V, p.orders, p.log_decay_channels > 1);
}

template <class T>
inline T gate(const Problem& p, Int b, Int t, Int h) {
  T log = *at<T>(p.log_gain, b, t, h);
  if (!(log < std::numeric_limits<T>::infinity())) throw std::domain_error("log_gain");
  return log;
}

// What no cost may be above: 0, but for what rounding leaves where gates have been absorbed.
template <class T>
inline T most_cost(const Problem& p) {
  return p.gates_absorbed ? T(0.5) : T(0);
}

// Whether states come in or go out, or their gradients.
inline bool has_states(const Problem& p) {
  bool any = false;
  for (int i = 0; i < 2; ++i) any |= p.entering[i].sums || p.leaving[i].sums || p.dleaving[i].sums;
  return any;
}

template <class T>
class Head {
 public:
  using Sequence = Sequences::Sequence;

  const Problem& p;
  const Sequence& sequence;
  Int b, h, n;
  Int chunk, chunks;

  Head(const Problem& problem, const Sequence& s, Int head) : p(problem), sequence(s), b(s.row), h(head), n(s.tokens) {
    chunk = chunk_of(p, n);
    chunks = (n + chunk - 1) / chunk;
    if (p.log_gain.data) absorb_gains();
  }

  Int orders() const { return std::max<Int>(p.orders, 1); }
  bool one_block() const { return chunks == 1 && !has_states(p); }
  // The chunks below this one are first visited from the left, the others from the right.
  Int middle() const { return one_block() ? 1 : chunks / 2; }

  // The decays of a direction, and their gradients: one for both, or each its own.
  bool two_sided() const { return p.log_decay_reverse.data; }
  const Rows& log_decay(bool reverse) const { return reverse && two_sided() ? p.log_decay_reverse : p.log_decay; }
  const Rows& dlog_decay(bool reverse) const { return reverse && two_sided() ? p.dlog_decay_reverse : p.dlog_decay; }
  bool fixed_decay(bool reverse) const {
    return !p.log_gain.data && (!p.log_decay.data || log_decay(reverse).token == 0);
  }
  // Whether every token counts every other in full, and once: there is no mask then.
  bool counts_in_full() const { return !p.log_decay.data && !p.log_gain.data && p.direction == BOTH && orders() == 1; }
  Int decay_head(Int order) const { return p.decay_per_order ? order * p.H + h : h; }
  bool in_order() const { return sequence.lists.empty(); }

  Int token(Int order, Int place) const {
    return sequence.lists.empty() ? sequence.start + place
                                  : sequence.lists[static_cast<std::size_t>(order)][static_cast<std::size_t>(place)];
  }

  Int first_of(Int c) const { return c * chunk; }
  Int size_of(Int c) const { return std::min(chunk, n - c * chunk); }

  // Of the tokens of chunk c, in the order that a walk from that side meets them.
  void tokens_of(Int order, Int c, bool from_right, Int* tokens) const {
    each(c, from_right, [&](Int i, Int place) { tokens[i] = token(order, place); });
  }

  // What it costs to leave them, going on and going back.
  void costs_of(Int order, Int c, bool from_right, T* ahead, T* back) const {
    if (p.log_gain.data) {
      const T* f = gain(order, F);
      const T* g = gain(order, B);
      if (from_right) std::swap(f, g);
      each(c, from_right, [&](Int i, Int place) { ahead[i] = f[place], back[i] = g[place]; });
    } else {
      each(c, from_right, [&](Int i, Int place) { ahead[i] = back[i] = cost(order, token(order, place), from_right); });
      if (two_sided())
        each(c, from_right, [&](Int i, Int place) { back[i] = cost(order, token(order, place), !from_right); });
    }
  }

  // Factors of the keys and of the queries; null if there are none.
  const T* keys_of(Int order, Int c, bool from_right, T* to) const { return scales(order, c, from_right, KEY, to); }
  const T* queries_of(Int order, Int c, bool from_right, T* to) const {
    return orders() > 1 ? scales(order, c, from_right, QUERY, to) : nullptr;
  }

  // A state of this head in the caller's memory. Those that enter are multiplied by their `entry`.
  T* sums_of(const State& x) const { return static_cast<T*>(x.sums) + (b * p.H + h) * p.D * p.V; }
  T* keys_of(const State& x) const { return static_cast<T*>(x.keys) + (b * p.H + h) * p.D; }
  T entry(bool reverse) const { return entry_[reverse]; }
  void put_scale(bool reverse) const {
    if (p.log_gain.data) *scale_of(p.leaving[reverse]) = ends_.leaving[reverse];
  }

  // By token: num and den are kept times exp(-this). -inf where nothing arrives.
  T log_scale(Int t) const {
    return p.log_gain.data ? static_cast<const T*>(gains_)[scale_offset() + t - sequence.start] : T(0);
  }

 private:
  enum Which { F, B, KEY, QUERY, PER_ORDER };

  template <class Each>
  void each(Int c, bool from_right, Each f) const {
    Int m = size_of(c), first = first_of(c);
    for (Int i = 0; i < m; ++i) f(i, from_right ? first + m - 1 - i : first + i);
  }

  T cost(Int order, Int t, bool reverse) const {
    if (!p.log_decay.data) return 0;
    T log = *at<T>(log_decay(reverse), b, t, decay_head(order));
    if (!(log <= most_cost<T>(p))) throw std::domain_error("log_decay");
    return log;
  }

  T* scale_of(const State& x) const { return static_cast<T*>(x.log_scale) + b * p.H + h; }

  T* gain(Int order, Which which) const { return gains_ + (order * PER_ORDER + which) * n; }
  Int scale_offset() const { return orders() * PER_ORDER * n; }

  const T* scales(Int order, Int c, bool from_right, Which which, T* to) const {
    if (!p.log_gain.data) return nullptr;
    const T* x = gain(order, which);
    each(c, from_right, [&](Int i, Int place) { to[i] = x[place]; });
    return to;
  }

  void absorb_gains() {
    gains_ = static_cast<T*>(memory_.reserve(static_cast<std::size_t>(scale_offset() + sequence.length) * sizeof(T)));
    T* scale = gains_ + scale_offset();
    std::fill(scale, scale + sequence.length, -std::numeric_limits<T>::infinity());
    std::vector<T> log_gain(static_cast<std::size_t>(n));
    for (bool reverse : {false, true})
      if (p.entering[reverse].sums) ends_.entering[reverse] = *scale_of(p.entering[reverse]);
    for (Int o = 0; o < orders(); ++o) {
      for (Int i = 0; i < n; ++i) {
        Int t = token(o, i);
        log_gain[static_cast<std::size_t>(i)] = gate<T>(p, b, t, h);
        gain(o, F)[i] = gain(o, B)[i] = cost(o, t, false);
        if (two_sided()) gain(o, B)[i] = cost(o, t, true);
      }
      absorb_gain(log_gain.data(), n, p.direction, gain(o, F), gain(o, B), gain(o, QUERY), gain(o, KEY), ends_);
      for (bool reverse : {false, true}) {
        T first = gain(o, QUERY)[reverse ? n - 1 : 0];
        entry_[reverse] = std::isinf(first) ? T(0) : std::exp(ends_.entering[reverse] - first);
      }
      for (Int i = 0; i < n; ++i) {
        T& most = scale[token(o, i) - sequence.start];
        most = std::fmax(most, gain(o, QUERY)[i]);
      }
    }
    // Each order arrives at a scale of its own; a token's sum over the orders has the largest.
    for (Int o = 0; o < orders(); ++o)
      for (Int i = 0; i < n; ++i) {
        T top = scale[token(o, i) - sequence.start];
        T& own = gain(o, QUERY)[i];
        own = std::isinf(top) ? T(1) : std::exp(own - top);
      }
  }

  Buffer memory_;
  T* gains_ = nullptr;
  Ends<T> ends_;
  T entry_[2] = {1, 1};
};

}  // namespace
}  // namespace lion
