// What the forward and the backward pass do alike with a chunk.
#pragma once

#include "block.h"
#include "division.h"
#include "head.h"

namespace lion {
namespace {

// A visit to a chunk: by the walk from which side, and what is left for it to do there.
struct Visit {
  Int order, chunk;
  bool from_right;
  bool inside;        // this visit does what the chunk's tokens do to each other
  bool first, last;   // of all visits to these tokens, over all orders
  bool first_cost;    // of all that touch the gradients of their costs
  bool enter, leave;  // whether there are tokens behind and ahead

  // As if there were a chunk behind the last.
  Visit beyond() const {
    Visit next = *this;
    next.chunk += from_right ? -1 : 1;
    return next;
  }
};

// Every visit of one side to its first half, then its second: the sides meet in the middle, so that two threads
// can share a head and no state is computed twice. The order of all sums is the same for any number of threads.
template <class T, class Work>
inline void visit_half(const Head<T>& head, Int order, bool from_right, bool second, bool both_sides, Work work) {
  Int middle = both_sides ? head.middle() : (from_right ? 0 : head.chunks);
  bool low = from_right == second;  // the chunks below the middle
  Int begin = low ? 0 : middle, end = low ? middle : head.chunks;
  bool only = !both_sides || head.one_block();
  for (Int i = 0; i < end - begin; ++i) {
    Int c = from_right ? end - 1 - i : begin + i;
    Visit v = {order, c, from_right, !second, false, false, false, false, false};
    v.first = order == 0 && !second;
    v.first_cost = (order == 0 || head.p.decay_per_order) && !second;
    v.last = order == head.orders() - 1 && (second || only);
    v.enter = from_right ? c + 1 < head.chunks : c > 0;
    v.leave = from_right ? c > 0 : c + 1 < head.chunks;
    work(v);
  }
}

// Scratch of a chunk's tokens that both passes need.
template <class T>
struct Tokens {
  Int* tokens;
  T *ahead, *back;  // log costs
  Factor<T>*ahead_factors, *back_factors;
  T *key_scale, *query_scale;  // memory for the gates' factors
  const T *keys, *queries;     // the factors, or null
  T* row;

  void take(Arena& arena, Int chunk) {
    Int room = round_up(chunk, W<T>);
    tokens = arena.take<Int>(chunk);
    for (T** x : {&ahead, &back, &key_scale, &query_scale, &row}) *x = arena.take<T>(room);
    ahead_factors = arena.take<Factor<T>>(chunk);
    back_factors = arena.take<Factor<T>>(chunk);
  }

  void read(const Head<T>& head, const Visit& v) {
    Int n = head.size_of(v.chunk);
    head.tokens_of(v.order, v.chunk, v.from_right, tokens);
    head.costs_of(v.order, v.chunk, v.from_right, ahead, back);
    keys = head.keys_of(v.order, v.chunk, v.from_right, key_scale);
    queries = head.queries_of(v.order, v.chunk, v.from_right, query_scale);
    factors_of(ahead, n, head.fixed_decay(v.from_right), ahead_factors);
    if (head.p.log_gain.data || head.two_sided())
      factors_of(back, n, head.fixed_decay(!v.from_right), back_factors);
    else
      std::copy(ahead_factors, ahead_factors + n, back_factors);
  }

  static void factors_of(const T* logs, Int n, bool fixed, Factor<T>* to) {
    if (fixed)
      std::fill(to, to + n, factor(logs[0]));
    else
      to_factors(logs, n, to);
  }
};

// A token's weight of itself: sum of w_d q_d k_d.
template <class T>
struct SelfWeight {
  const T* w;
  Int step;  // 0: one weight for all channels

  static SelfWeight of(const Head<T>& head, Int t) {
    return {at<T>(head.p.self_weight, head.b, t, head.h), head.p.self_weight_channels > 1 ? 1 : 0};
  }
  T operator()(const T* q, const T* k, Int D) const {
    T total = 0;
    for (Int d = 0; d < D; ++d) total += w[d * step] * q[d] * k[d];
    return total;
  }
};

// What follows from the gradient of a token's own score: dq, dk and, at the first order, dself_weight anew.
template <class T>
inline void own_gradients(const Head<T>& head, Int order, Int t, T grad, const T* q, const T* k, T* dq, T* dk) {
  const Problem& p = head.p;
  const T one = 1;
  SelfWeight<T> weight = {&one, 0};
  if (p.self_weight.data) weight = SelfWeight<T>::of(head, t);
  T* dw = p.dself_weight.data ? at<T>(p.dself_weight, head.b, t, head.h) : nullptr;
  if (dw && order == 0) std::fill(dw, dw + p.self_weight_channels, T(0));
  for (Int d = 0; d < p.D; ++d) {
    T w = weight.w[d * weight.step];
    dq[d] += grad * w * k[d];
    dk[d] += grad * w * q[d];
    if (dw) dw[d * weight.step] += grad * q[d] * k[d];
  }
}

// What a token adds to its own score.
template <class T>
inline T own_score(const Head<T>& head, Int t, const T* q, const T* k) {
  return head.p.self_weight.data ? SelfWeight<T>::of(head, t)(q, k, head.p.D) : dot(q, k, head.p.D);
}

// Completes the dens of some tokens; `last` is what the rows of the completed nums are multiplied by.
template <class T>
inline void divide(const Head<T>& head, const Division<T>& division, const Visit& visit, const Int* tokens, Int n,
                   T* den, T* last) {
  for (Int i = 0; i < n; ++i) {
    Int t = tokens[i];
    last[i] = 1;
    if (!visit.first && division.with_den()) den[i] += *at<T>(head.p.den, head.b, t, head.h);
    if (visit.last)
      last[i] = division.complete(t, den[i], head.log_scale(t));
    else if (division.with_den())
      *at<T>(head.p.den, head.b, t, head.h) = den[i];
  }
}

// One way only, products would let NaN through where the mask is 0, to tokens that are not to see it. So values v [n,
// V] that are not finite are left out of them, and what they do reach is spoiled by hand: `spoils` [n] has their NaN,
// and 0 for the others. Returns whether there are any.
template <class T>
inline bool set_spoiled_apart(Int n, Int V, T* v, Int v_row, T* spoils) {
  bool any = false;
  for (Int i = 0; i < n; ++i, v += v_row) {
    Vec<T> total = {};
    for (Int j = 0; j < V; j += W<T>) total += load(v + j) * T(0);
    spoils[i] = sum<T>(total);
    if (spoils[i] == 0) continue;
    std::fill(v, v + v_row, T(0));
    any = true;
  }
  return any;
}

// g [n, V] = the gradient of the nums, dden [n] of the dens, which are found at the first visit, then kept by token.
template <class T>
inline void read_gradients(const Head<T>& head, const Division<T>& division, bool first, const Int* tokens, Int n, T* g,
                           Int g_row, T* dden, T* kept, T* part) {
  const Problem& p = head.p;
  gather<T>(rows_of<T>(p.dout, p, head.b, head.h, p.wide_out), tokens, n, p.V, nullptr, g, g_row);
  for (Int i = 0; i < n; ++i) {
    Int t = tokens[i];
    T& own = kept[t - head.sequence.start];
    if (first) own = division.den_grad(t, head.log_scale(t), g + i * g_row, part);
    dden[i] = own;
    T scale = division.num_factor(t, head.log_scale(t));
    if (scale != 1) scale_rows(g + i * g_row, 0, 1, p.V, &scale);
  }
}

// The rows that the visit `later` chunks after this one will touch, to be fetched meanwhile.
struct Touched {
  const Rows* rows;
  Int columns;
  bool wide = false;  // not in the dtype of q
};

template <class T>
inline void prefetch_rows(const Head<T>& head, const Visit& visit, Int later, std::initializer_list<Touched> touched,
                          Prefetch& prefetch) {
  prefetch.clear();
  if (later && !visit.leave) return;
  Int c = visit.from_right ? visit.chunk - later : visit.chunk + later;
  Int m = head.size_of(c);
  for (const Touched& x : touched) {
    if (!x.rows->data) continue;
    HeadRows rows = rows_of<T>(*x.rows, head.p, head.b, head.h, x.wide);
    for (Int i = 0; i < m; ++i) {
      Int t = head.token(visit.order, head.first_of(c) + (visit.from_right ? m - 1 - i : i));
      prefetch.add(rows.row<char>(t), x.columns * Int(sizeof(T)));
    }
  }
}

// sums [columns] = keep sums + the sum of n rows, each times its weight (null: 1); `lost` as in Sum
template <class T>
inline void add_columns(const T* rows, Int row, Int n, Int columns, const T* weights, Factor<T> keep, T* sums,
                        T* lost) {
  for (Int j = 0; j < columns; j += W<T>) {
    Vec<T> total = {};
    for (Int i = 0; i < n; ++i) total += load(rows + i * row + j) * (weights ? weights[i] : T(1));
    Vec<T> old = load(sums + j);
    store(sums + j, lost ? add_exactly(old, keep, total, lost + j) : keep(old) + total);
  }
}

// The masks of a whole sequence in one block, for all orders at once. Tokens are where the first order has them, and
// the walks of the others jump.
template <class T>
class AllOrders {
 public:
  AllOrders(const Head<T>& head) : head_(head) {
    Int n = head.n, orders = head.orders();
    places_.resize(static_cast<std::size_t>(n * orders));
    std::vector<std::int32_t> place(static_cast<std::size_t>(head.sequence.length));
    for (Int i = 0; i < n; ++i)
      place[static_cast<std::size_t>(head.token(0, i) - head.sequence.start)] = static_cast<std::int32_t>(i);
    for (Int o = 0; o < orders; ++o)
      for (Int i = 0; i < n; ++i)
        places_[static_cast<std::size_t>(o * n + i)] =
            place[static_cast<std::size_t>(head.token(o, i) - head.sequence.start)];
    tokens_.assign(head.sequence.lists[0].begin(), head.sequence.lists[0].end());
    Int per_order = 4 * round_up(n, W<T>);
    data_.assign(static_cast<std::size_t>(orders * per_order + 2 * n), T(0));
    factors_.resize(static_cast<std::size_t>(2 * n * orders));
    std::vector<T> costs(static_cast<std::size_t>(2 * n));
    for (Int o = 0; o < orders; ++o) {
      head.costs_of(o, 0, false, costs.data(), costs.data() + n);
      T* scale = data_.data() + orders * per_order;
      for (Int which = 0; which < 2; ++which) {
        const T* scales = which ? head.queries_of(o, 0, false, scale) : head.keys_of(o, 0, false, scale);
        gated_ = scales != nullptr;
        if (scales)
          for (Int i = 0; i < n; ++i) weights(o, which)[places_[static_cast<std::size_t>(o * n + i)]] = scales[i];
      }
      for (Int way = 0; way < 2; ++way)
        for (Int i = 0; i < n; ++i)
          factors_[static_cast<std::size_t>((2 * o + way) * n + places_[static_cast<std::size_t>(o * n + i)])] =
              factor(costs[static_cast<std::size_t>(way * n + i)]);
    }
  }

  const Int* tokens() const { return tokens_.data(); }

  template <class Each>
  void walks(Int order, Each each) {
    for (Int way = 0; way < 2; ++way)
      if (head_.p.direction & (way ? REVERSE : FORWARD))
        each(Walk<T>{factors(order, way), order ? places_.data() + order * head_.n : nullptr, way == 1,
                     gated_ ? weights(order, 1) : nullptr, gated_ ? weights(order, 0) : nullptr});
  }

  void mask(T* mask, Int mask_row, T* row) {
    Int n = head_.n, padded = round_up(n, W<T>), direction = head_.p.direction;
    if (gated_)
      for (Int i = 0; i < n; ++i)
        for (Int j = 0; j < padded; j += W<T>) store(mask + i * mask_row + j, Vec<T>{});
    else
      block_mask(direction & FORWARD ? factors(0, 0) : nullptr, direction & REVERSE ? factors(0, 1) : nullptr, n, mask,
                 mask_row);
    for (Int o = gated_ ? 0 : 1; o < head_.orders(); ++o) {
      walks(o, [&](const Walk<T>& walk) { add_mask(walk, n, mask, mask_row, row); });
      for (Int i = 0; i < n; ++i) mask[i * mask_row + i] += gated_ ? weights(o, 0)[i] * weights(o, 1)[i] : T(1);
    }
  }

 private:
  const Factor<T>* factors(Int order, Int way) const { return factors_.data() + (2 * order + way) * head_.n; }
  T* weights(Int order, Int which) { return data_.data() + (2 * order + which) * round_up(head_.n, W<T>); }

  const Head<T>& head_;
  std::vector<Int> tokens_;
  std::vector<std::int32_t> places_;  // [orders, n], in walking order
  std::vector<Factor<T>> factors_;    // [orders, 2, n], by place
  std::vector<T> data_;
  bool gated_ = false;
};

}  // namespace
}  // namespace lion
