// The forward pass of one head: visits to its chunks from both sides.
#pragma once

#include "passes.h"

namespace lion {
namespace {

template <class T>
struct ForwardScratch {
  Tokens<T> tokens;
  T *q, *k, *v, *kt, *scores, *mask, *out;
  T *den, *arrive, *leave, *last, *spoils;
  Int d_row, v_row, c_row;
  Prefetch prefetch;

  void take(Arena& arena, const Problem& p, Int chunk) {
    Int rows = round_up(chunk, W<T>);
    d_row = leading<T>(p.D), v_row = leading<T>(p.V), c_row = leading<T>(chunk);
    tokens.take(arena, chunk);
    for (T** x : {&q, &k}) *x = arena.take<T>(rows * d_row);
    for (T** x : {&v, &out}) *x = arena.take<T>(rows * v_row);
    for (T** x : {&scores, &mask}) *x = arena.take<T>(rows * c_row);
    kt = arena.take<T>(round_up(p.D, W<T>) * c_row);
    for (T** x : {&den, &arrive, &leave, &last, &spoils}) *x = arena.take<T>(rows);
  }
};

template <class T>
class Forward : public ForwardPass<T> {
  using Base = ForwardPass<T>;
  using Base::head_, Base::p_, Base::division_, Base::sides_, Base::out_;
  using typename Base::Side;

 public:
  using Scratch = ForwardScratch<T>;
  static constexpr bool all_orders_at_once = true;  // in a short sequence

  using Base::Base;

  void prefetch(const Visit& visit, Int later, Scratch& x) {
    bool wide = p_.wide_out;
    prefetch_rows(head_, visit, later, {{&p_.k, p_.D}, {&p_.v, p_.V}, {&p_.q, p_.D}, {&p_.out, p_.V, wide}},
                  x.prefetch);
  }

  void visit(const Visit& visit, Scratch& x) {
    Side& side = sides_[visit.from_right];
    Int n = head_.size_of(visit.chunk), D = p_.D, V = p_.V;
    bool leaves = this->leaves(visit);
    x.tokens.read(head_, visit);
    HeadRows queries = rows_of<T>(p_.q, p_, head_.b, head_.h);
    Matrix<T> q = {x.q, x.d_row};
    if (lies_evenly<T>(queries, D, head_.in_order()) && !x.tokens.queries)
      q = {queries.row<T>(x.tokens.tokens[0]), step_between<T>(queries, x.tokens.tokens, n)};
    else if (has_output(p_))
      gather(queries, x.tokens.tokens, n, D, x.tokens.queries, x.q, x.d_row);
    HeadRows keys = rows_of<T>(p_.k, p_, head_.b, head_.h);
    Matrix<T> k = {x.k, x.d_row};
    if (lies_evenly<T>(keys, D, head_.in_order()) && !x.tokens.keys && !p_.self_weight.data)
      k = {keys.row<T>(x.tokens.tokens[0]), step_between<T>(keys, x.tokens.tokens, n)};
    else if (visit.inside && has_output(p_))
      gather(keys, x.tokens.tokens, n, D, x.tokens.keys, x.k, x.d_row);
    gather(rows_of<T>(p_.v, p_, head_.b, head_.h), x.tokens.tokens, n, V, static_cast<const T*>(nullptr), x.v, x.v_row);
    bool spoiled = one_way() && set_spoiled_apart(n, p_.V, x.v, x.v_row, x.spoils);

    if (visit.inside && has_output(p_)) {
      bool on = p_.direction & (visit.from_right ? REVERSE : FORWARD);
      bool back = p_.direction & (visit.from_right ? FORWARD : REVERSE);
      if (!head_.counts_in_full())
        block_mask(on ? x.tokens.ahead_factors : nullptr, back ? x.tokens.back_factors : nullptr, n, x.mask, x.c_row);
      transpose(k.data, k.row, n, D, x.kt, x.c_row);
    }
    Crossing<T> crossing = {x.arrive, x.leave, {}};
    if (this->enters(visit) || leaves) cross(x.tokens.ahead, x.tokens.ahead_factors, n, false, crossing);
    if (has_output(p_)) attend(visit, n, x.tokens.tokens, q, &side, spoiled, x);
    if (leaves) {
      if (x.tokens.keys)
        for (Int i = 0; i < n; ++i) x.leave[i] *= x.tokens.keys[i];
      gather(keys, x.tokens.tokens, n, D, x.leave, x.k, x.d_row);
      if (this->with_keys(visit))
        add_columns(x.k, x.d_row, n, D, static_cast<const T*>(nullptr), crossing.cross, side.sum, side.lost_sum);
      multiply<T>(D, V,
                  {.c = side.state,
                   .c_row = x.v_row,
                   .plain = {n, x.k, 1, x.d_row, x.v, x.v_row},
                   .fresh = false,
                   .keep = crossing.cross,
                   .prefetch = &x.prefetch,
                   .lost = side.lost_state});
      if (spoiled) std::fill(side.state, side.state + D * x.v_row, std::numeric_limits<T>::quiet_NaN());
      if (!visit.leave) leave_state(head_, visit.from_right, side.state, x.v_row, side.sum);
    }
  }

  // All of a short sequence, in all orders, in one block.
  void visit_all(Scratch& x) {
    AllOrders<T> orders(head_);
    Int n = head_.n;
    const Int* tokens = orders.tokens();
    const T* unscaled = nullptr;
    gather(rows_of<T>(p_.q, p_, head_.b, head_.h), tokens, n, p_.D, unscaled, x.q, x.d_row);
    gather(rows_of<T>(p_.k, p_, head_.b, head_.h), tokens, n, p_.D, unscaled, x.k, x.d_row);
    gather(rows_of<T>(p_.v, p_, head_.b, head_.h), tokens, n, p_.V, unscaled, x.v, x.v_row);
    bool spoiled = one_way() && set_spoiled_apart(n, p_.V, x.v, x.v_row, x.spoils);
    orders.mask(x.mask, x.c_row, x.tokens.row);
    transpose(x.k, x.d_row, n, p_.D, x.kt, x.c_row);
    x.prefetch.clear();
    attend({0, 0, false, true, true, true, true, false, false}, n, tokens, {x.q, x.d_row}, nullptr, spoiled, x);
  }

 private:
  static constexpr Int FAST_BYTES = 24 << 10;  // for scores: most of the first-level cache

  bool one_way() const { return p_.direction != BOTH; }

  // Adds to row factors what arrives from tokens that are set apart.
  void spoil(Int first, Int m, Int n, Scratch& x) const {
    for (Int i = 0; i < m; ++i)
      for (Int j = 0; j < n; ++j)
        if (x.mask[(first + i) * x.c_row + j] != 0) x.last[i] += x.spoils[j];
  }

  // The chunk's rows, a few at a time: their scores stay in the fastest cache.
  void attend(const Visit& visit, Int n, const Int* tokens, Matrix<T> q, const Side* side, bool spoiled, Scratch& x) {
    bool in_place = !out_.own && lies_evenly<T>(out_.out, p_.V, head_.in_order());
    Int step = in_place ? step_between<T>(out_.out, tokens, n) : 0;
    bool enter = this->enters(visit);
    Int rows_at_once = std::max<Int>(1, FAST_BYTES / static_cast<Int>(sizeof(T)) / n / TILE_ROWS) * TILE_ROWS;
    for (Int first = 0; first < n; first += rows_at_once) {
      Int m = std::min(rows_at_once, n - first);
      Matrix<T> rows = {q.data + first * q.row, q.row};
      if (visit.inside)
        score(first, m, n, tokens, rows, x);
      else
        std::fill(x.den, x.den + m, T(0));
      if (enter && division_.with_den())
        for (Int i = 0; i < m; ++i) x.den[i] += x.arrive[first + i] * dot(rows.data + i * rows.row, side->sum, p_.D);
      divide(head_, division_, visit, tokens + first, m, x.den, x.last);
      if (spoiled && visit.inside) spoil(first, m, n, x);
      Product<T> entering = {enter ? p_.D : 0, rows.data, rows.row, 1, enter ? side->state : nullptr, x.v_row};
      Product<T> inside = {visit.inside ? n : 0, x.scores, x.c_row, 1, x.v, x.v_row};
      const T* arrive = x.arrive + first;
      if (in_place) {
        T* out = out_.out.template row<T>(tokens[first]);
        multiply<T>(m, p_.V,
                    {.c = out,
                     .c_row = step,
                     .scaled = entering,
                     .row = arrive,
                     .plain = inside,
                     .fresh = visit.first,
                     .last_row = x.last,
                     .prefetch = &x.prefetch});
      } else {
        multiply<T>(m, p_.V,
                    {.c = x.out,
                     .c_row = x.v_row,
                     .scaled = entering,
                     .row = arrive,
                     .plain = inside,
                     .prefetch = &x.prefetch});
        for (Int i = 0; i < m; ++i)
          out_.add(tokens[first + i], x.out + i * x.v_row, 1, visit.first, visit.last, x.last[i]);
      }
    }
  }

  // scores [m, n] = Q K^T times the mask, den [m] its row sums
  void score(Int first, Int m, Int n, const Int* tokens, Matrix<T> q, Scratch& x) {
    Int padded = round_up(n, W<T>);
    bool masked = !head_.counts_in_full();
    Product<T> scores = {p_.D, q.data, q.row, 1, x.kt, x.c_row};
    multiply<T>(m, n, {.c = x.scores, .c_row = x.c_row, .plain = scores, .prefetch = &x.prefetch});
    for (Int i = 0; i < m; ++i) {
      T* row = x.scores + i * x.c_row;
      const T* mask = x.mask + (first + i) * x.c_row;
      if (p_.self_weight.data) {
        SelfWeight<T> weight = SelfWeight<T>::of(head_, tokens[first + i]);
        row[first + i] = weight(q.data + i * q.row, x.k + (first + i) * x.d_row, p_.D);
      }
      Vec<T> total = {};
      for (Int j = 0; j < padded; j += W<T>) {
        Vec<T> y = load(row + j);
        if (masked) {
          Vec<T> m = load(mask + j);
          y *= m;
          if (one_way()) y = m == 0 ? Vec<T>{} : y;  // also for NaN
          store(row + j, y);
        }
        total += y;
      }
      x.den[i] = sum<T>(total);
    }
  }
};

}  // namespace
}  // namespace lion
