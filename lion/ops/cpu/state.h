// No decay, both directions: every token sees every token, so all of them see one state, sum of k v^T.
#pragma once

#include "backward.h"
#include "forward.h"

namespace lion {
namespace {

constexpr Int BLOCK = 64;      // tokens that are read at a time
constexpr Int SEGMENT = 4096;  // tokens whose states one task adds up: the sums are the same for any threads

// The states of all heads: sums of rows x columns^T and of rows, by segment first.
template <class T>
class OneState {
 public:
  OneState(const Problem& p, bool backward) : p_(p), backward_(backward), sequences_(p) {
    d_row_ = leading<T>(p.D), v_row_ = leading<T>(p.V);
    segments_ = (sequences_.longest() + SEGMENT - 1) / SEGMENT;
    heads_ = sequences_.size() * p.H;
    size_ = round_up(p.D, W<T>) * v_row_ + d_row_;
    std::size_t states = static_cast<std::size_t>(heads_ * segments_ * size_ * (backward ? 2 : 1));
    states_ = static_cast<T*>(memory_.reserve(states * sizeof(T)));
    if (p.log_gain.data) largest_.resize(static_cast<std::size_t>(heads_));
  }

  void run(Parallel parallel) {
    auto stage = [&](Int count, Task task) { parallel(count, p_.threads, task, this); };
    if (p_.log_gain.data) stage(heads_, [](void* x, Int i) { self(x).find_largest(i); });
    stage(heads_ * segments_, [](void* x, Int i) { self(x).collect(i / self(x).segments_, i % self(x).segments_); });
    stage(heads_, [](void* x, Int i) { self(x).combine(i); });
    stage(heads_ * segments_, [](void* x, Int i) { self(x).serve(i / self(x).segments_, i % self(x).segments_); });
  }

 private:
  static OneState& self(void* x) { return *static_cast<OneState*>(x); }

  struct Scratch {
    T *q, *k, *v, *g, *out, *transposed, *scale, *dden, *part;
    Int tokens[BLOCK];
  };

  Scratch scratch() const {
    thread_local Buffer memory;
    Pieces count, pieces;
    for (int turn = 0; turn < 2; ++turn) {
      Scratch x;
      if (turn) pieces = Pieces(memory.reserve(count.used()));
      for (T** y : {&x.q, &x.k}) *y = pieces.take<T>(BLOCK * d_row_);
      for (T** y : {&x.v, &x.g}) *y = pieces.take<T>(BLOCK * v_row_);
      x.out = pieces.take<T>(BLOCK * std::max(d_row_, v_row_));
      x.part = pieces.take<T>(v_row_);
      x.transposed = pieces.take<T>(2 * round_up(p_.V, W<T>) * d_row_);
      x.scale = pieces.take<T>(BLOCK), x.dden = pieces.take<T>(BLOCK);
      if (turn) return x;
      count = pieces;
    }
    __builtin_unreachable();
  }

  struct Where {
    const Sequences::Sequence& sequence;
    Int b, h, first, last;
  };

  Where where(Int head, Int segment) const {
    const auto& s = sequences_[head / p_.H];
    return {s, s.row, head % p_.H, segment * SEGMENT, std::min(s.tokens, (segment + 1) * SEGMENT)};
  }

  T* state(Int head, Int segment, bool of_gradient) const {
    return states_ + ((head * segments_ + segment) * (backward_ ? 2 : 1) + of_gradient) * size_;
  }
  T* sums_of(T* state) const { return state + round_up(p_.D, W<T>) * v_row_; }

  T orders() const { return static_cast<T>(std::max<Int>(p_.orders, 1)); }

  static Int token(const Sequences::Sequence& s, Int place) {
    return s.lists.empty() ? s.start + place : s.lists[0][static_cast<std::size_t>(place)];
  }

  void find_largest(Int head) {
    Where w = where(head, 0);
    T most = -std::numeric_limits<T>::infinity();
    for (Int i = 0; i < w.sequence.tokens; ++i) most = std::fmax(most, gate<T>(p_, w.b, token(w.sequence, i), w.h));
    largest_[static_cast<std::size_t>(head)] = most;
  }

  T largest(Int head) const { return p_.log_gain.data ? largest_[static_cast<std::size_t>(head)] : T(0); }

  // The blocks of a segment; fills in the tokens and the keys' factors.
  template <class Each>
  void blocks(Int head, Int segment, Scratch& x, Each each) {
    Where w = where(head, segment);
    T top = largest(head);
    for (Int first = w.first; first < w.last; first += BLOCK) {
      Int n = std::min(BLOCK, w.last - first);
      for (Int i = 0; i < n; ++i) x.tokens[i] = token(w.sequence, first + i);
      const T* scale = nullptr;
      if (p_.log_gain.data) {
        for (Int i = 0; i < n; ++i) {
          T gain = *at<T>(p_.log_gain, w.b, x.tokens[i], w.h);
          x.scale[i] = std::isinf(top) ? T(0) : std::exp(gain - top);
        }
        scale = x.scale;
      }
      each(w, n, scale);
    }
  }

  void read(const Rows& rows, const Where& w, Scratch& x, Int n, Int columns, const T* scale, T* to, Int row) {
    gather(rows_of<T>(rows, p_, w.b, w.h), x.tokens, n, columns, scale, to, row);
  }

  bool with_den() const { return p_.norm != NONE; }

  void collect(Int head, Int segment) {
    Scratch x = scratch();
    T* sums = state(head, segment, false);
    std::fill(sums, sums + size_ * (backward_ ? 2 : 1), T(0));
    blocks(head, segment, x, [&](const Where& w, Int n, const T* scale) {
      read(p_.k, w, x, n, p_.D, scale, x.k, d_row_);
      read(p_.v, w, x, n, p_.V, nullptr, x.v, v_row_);
      add(n, x.k, x.v, nullptr, state(head, segment, false));
      if (!backward_) return;
      read(p_.q, w, x, n, p_.D, nullptr, x.q, d_row_);
      read_gradient(w, head, n, x);
      add(n, x.q, x.g, x.dden, state(head, segment, true));
    });
  }

  void add(Int n, const T* rows, const T* columns, const T* weights, T* to) {
    multiply<T>(p_.D, p_.V, {.c = to, .c_row = v_row_, .plain = {n, rows, 1, d_row_, columns, v_row_}, .fresh = false});
    if (!with_den()) return;
    T* sums = sums_of(to);
    for (Int j = 0; j < p_.D; j += W<T>) {
      Vec<T> total = {};
      for (Int i = 0; i < n; ++i) total += load(rows + i * d_row_ + j) * (weights ? weights[i] : T(1));
      store(sums + j, load(sums + j) + total);
    }
  }

  void combine(Int head) {
    for (Int which = 0; which < (backward_ ? 2 : 1); ++which) {
      T* total = state(head, 0, which);
      Int used = (where(head, 0).sequence.tokens + SEGMENT - 1) / SEGMENT;
      for (Int s = 1; s < used; ++s) {
        const T* more = state(head, s, which);
        for (Int i = 0; i < size_; i += W<T>) store(total + i, load(total + i) + load(more + i));
      }
    }
  }

  void serve(Int head, Int segment) {
    if (backward_)
      serve_backward(head, segment);
    else
      serve_forward(head, segment);
  }

  void serve_forward(Int head, Int segment) {
    Scratch x = scratch();
    T *total = state(head, 0, false), top = largest(head);
    T times = orders();
    blocks(head, segment, x, [&](const Where& w, Int n, const T*) {
      Growing<T> out = {rows_of<T>(p_.out, p_, w.b, w.h, p_.norm == RAW), nullptr, p_.V, 0};
      read(p_.q, w, x, n, p_.D, nullptr, x.q, d_row_);
      multiply<T>(n, p_.V, {.c = x.out, .c_row = v_row_, .plain = {p_.D, x.q, d_row_, 1, total, v_row_}});
      for (Int i = 0; i < n; ++i) {
        Int t = x.tokens[i];
        T scale = times, final = 1;
        if (with_den()) {
          T den = times * dot(x.q + i * d_row_, sums_of(total), p_.D);
          *at<T>(p_.den, w.b, t, w.h) = den;
          if (p_.norm == SUM) final = 1 / den;
          if (p_.norm == MAX) final = 1 / std::fmax(std::fabs(den), std::exp(-top));
        } else if (p_.log_gain.data) {
          scale *= std::exp(top);
        }
        if (p_.norm == RAW && p_.log_gain.data) *at<T>(p_.log_scale, w.b, t, w.h) = top;
        if (out.out.half) out.own = x.part, out.first_token = t;
        out.add(t, x.out + i * v_row_, scale, true, true, final);
      }
    });
  }

  // g = dnum and dden of a block
  void read_gradient(const Where& w, Int head, Int n, Scratch& x) {
    gather(rows_of<T>(p_.dout, p_, w.b, w.h, p_.norm == RAW), x.tokens, n, p_.V, static_cast<const T*>(nullptr), x.g,
           v_row_);
    T top = largest(head), times = orders();
    for (Int i = 0; i < n; ++i) {
      T scale = times;
      T* g = x.g + i * v_row_;
      x.dden[i] = p_.norm == RAW ? times * *at<T>(p_.dden, w.b, x.tokens[i], w.h) : T(0);
      if (p_.norm == NONE && p_.log_gain.data) scale *= std::exp(top);
      if (p_.norm == SUM || p_.norm == MAX) {
        T den = *at<T>(p_.den, w.b, x.tokens[i], w.h), divisor = den;
        T least = p_.norm == MAX ? std::exp(-top) : T(0);
        if (p_.norm == MAX) divisor = std::fmax(std::fabs(den), least);
        gather(rows_of<T>(p_.out, p_, w.b, w.h, p_.norm == RAW), x.tokens + i, 1, p_.V, static_cast<const T*>(nullptr),
               x.part, 0);
        scale = times / divisor;
        x.dden[i] = -dot(g, x.part, p_.V) * scale;
        if (p_.norm == MAX) x.dden[i] = std::fabs(den) > least ? (den < 0 ? -x.dden[i] : x.dden[i]) : T(0);
      }
      for (Int j = 0; j < p_.V; j += W<T>) store(g + j, load(g + j) * scale);
    }
  }

  void serve_backward(Int head, Int segment) {
    Scratch x = scratch();
    T *total = state(head, 0, false), *dtotal = state(head, 0, true);
    T *columns = x.transposed, *dcolumns = x.transposed + round_up(p_.V, W<T>) * d_row_;
    transpose(total, v_row_, p_.D, p_.V, columns, d_row_);
    transpose(dtotal, v_row_, p_.D, p_.V, dcolumns, d_row_);
    blocks(head, segment, x, [&](const Where& w, Int n, const T* scale) {
      read(p_.k, w, x, n, p_.D, scale, x.k, d_row_);
      read(p_.v, w, x, n, p_.V, nullptr, x.v, v_row_);
      read_gradient(w, head, n, x);
      multiply<T>(n, p_.D, {.c = x.out, .c_row = d_row_, .plain = {p_.V, x.g, v_row_, 1, columns, d_row_}});
      add_sums(n, x.dden, sums_of(total), x.out);
      put(p_.dq, w, n, p_.D, nullptr, x.out, d_row_, x);
      multiply<T>(n, p_.D, {.c = x.out, .c_row = d_row_, .plain = {p_.V, x.v, v_row_, 1, dcolumns, d_row_}});
      add_sums(n, nullptr, sums_of(dtotal), x.out);
      if (p_.dlog_gain.data)
        for (Int i = 0; i < n; ++i)
          *at<T>(p_.dlog_gain, w.b, x.tokens[i], w.h) = dot(x.k + i * d_row_, x.out + i * d_row_, p_.D);
      put(p_.dk, w, n, p_.D, scale, x.out, d_row_, x);
      multiply<T>(n, p_.V, {.c = x.out, .c_row = v_row_, .plain = {p_.D, x.k, d_row_, 1, dtotal, v_row_}});
      put(p_.dv, w, n, p_.V, nullptr, x.out, v_row_, x);
    });
  }

  void add_sums(Int n, const T* weights, const T* sums, T* to) {
    if (!with_den()) return;
    for (Int i = 0; i < n; ++i)
      for (Int j = 0; j < p_.D; j += W<T>)
        store(to + i * d_row_ + j, load(to + i * d_row_ + j) + load(sums + j) * (weights ? weights[i] : T(1)));
  }

  void put(const Rows& rows, const Where& w, Int n, Int columns, const T* scale, const T* from, Int row, Scratch& x) {
    Growing<T> out = {rows_of<T>(rows, p_, w.b, w.h), nullptr, columns, 0};
    for (Int i = 0; i < n; ++i) {
      if (out.out.half) out.own = x.q, out.first_token = x.tokens[i];
      out.add(x.tokens[i], from + i * row, scale ? scale[i] : T(1), true, true);
    }
  }

  const Problem& p_;
  bool backward_;
  Sequences sequences_;
  Int d_row_, v_row_, segments_, heads_, size_;
  T* states_;
  std::vector<T> largest_;
  Buffer memory_;
};

}  // namespace
}  // namespace lion
