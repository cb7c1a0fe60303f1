// The forward pass of one head whose channels decay apart: as Forward's, with rows decayed by channel.
#pragma once

#include "channels.h"

namespace lion {
namespace {

template <class T>
struct DiagonalForwardScratch {
  Int* tokens;
  BothWays<T> channels;
  ChannelScores<T> block;
  T *q, *k, *v, *scores, *out, *running;
  T *den, *last, *spoils;
  Int d_row, v_row, c_row;
  Prefetch prefetch;

  void take(Arena& arena, const Problem& p, Int chunk) {
    Int rows = round_up(chunk, W<T>);
    tokens = arena.take<Int>(chunk);
    channels.take(arena, p, chunk);
    block.take(arena, p, chunk);
    d_row = block.d_row, c_row = block.c_row, v_row = leading<T>(p.V);
    for (T** x : {&q, &k}) *x = arena.take<T>(rows * d_row);
    for (T** x : {&v, &out}) *x = arena.take<T>(rows * v_row);
    scores = arena.take<T>(rows * c_row);
    for (T** x : {&den, &last, &spoils}) *x = arena.take<T>(rows);
    running = arena.take<T>(d_row);
  }
};

template <class T>
class DiagonalForward : public ForwardPass<T> {
  using Base = ForwardPass<T>;
  using Base::head_, Base::p_, Base::division_, Base::sides_, Base::out_;
  using typename Base::Side;

 public:
  using Scratch = DiagonalForwardScratch<T>;
  static constexpr bool all_orders_at_once = false;

  using Base::Base;

  void prefetch(const Visit& visit, Int later, Scratch& x) {
    prefetch_rows(head_, visit, later,
                  {{&p_.k, p_.D},
                   {&p_.v, p_.V},
                   {&p_.q, p_.D},
                   {&head_.log_decay(visit.from_right), p_.D, true},
                   {&p_.out, p_.V, p_.wide_out != 0}},
                  x.prefetch);
  }

  void visit(const Visit& visit, Scratch& x) {
    Side& side = sides_[visit.from_right];
    Int n = head_.size_of(visit.chunk), D = p_.D, V = p_.V;
    bool enters = this->enters(visit);
    head_.tokens_of(visit.order, visit.chunk, visit.from_right, x.tokens);
    x.channels.read(head_, visit.order, visit.from_right, x.tokens, n);
    if (has_output(p_)) gather<T>(rows_of<T>(p_.q, p_, head_.b, head_.h), x.tokens, n, D, nullptr, x.q, x.d_row);
    gather<T>(rows_of<T>(p_.k, p_, head_.b, head_.h), x.tokens, n, D, nullptr, x.k, x.d_row);
    gather<T>(rows_of<T>(p_.v, p_, head_.b, head_.h), x.tokens, n, V, nullptr, x.v, x.v_row);
    bool spoiled = p_.direction != BOTH && set_spoiled_apart(n, V, x.v, x.v_row, x.spoils);
    if (has_output(p_)) attend(visit, n, enters, spoiled, side, x);
    if (!this->leaves(visit)) return;
    x.channels.on().along(n, true, !p_.decay_between, x.k, x.running);
    x.channels.on().cross_rows(side.state, side.lost_state, x.v_row, V);
    multiply<T>(D, V,
                {.c = side.state,
                 .c_row = x.v_row,
                 .plain = {n, x.k, 1, x.d_row, x.v, x.v_row},
                 .fresh = false,
                 .prefetch = &x.prefetch,
                 .lost = side.lost_state});
    if (spoiled) std::fill(side.state, side.state + D * x.v_row, std::numeric_limits<T>::quiet_NaN());
    if (this->with_keys(visit)) {
      x.channels.on().cross_columns(side.sum, side.lost_sum, 0, 1);
      add_columns<T>(x.k, x.d_row, n, D, nullptr, {0, 1}, side.sum, side.lost_sum);
    }
    if (!visit.leave) leave_state(head_, visit.from_right, side.state, x.v_row, side.sum);
  }

  void visit_all(Scratch&) {}

 private:
  void attend(const Visit& visit, Int n, bool enters, bool spoiled, const Side& side, Scratch& x) {
    Int D = p_.D, V = p_.V;
    std::fill(x.den, x.den + n, T(0));
    if (visit.inside) score(visit, n, x);
    if (enters) {
      x.channels.on().along(n, false, false, x.q, x.running);
      if (division_.with_den())
        for (Int i = 0; i < n; ++i) x.den[i] += dot(x.q + i * x.d_row, side.sum, D);
    }
    divide(head_, division_, visit, x.tokens, n, x.den, x.last);
    if (spoiled) {  // in the order of the walk: a token is reached by those before it, and by itself
      T reached = 0;
      for (Int i = 0; i < n; ++i) x.last[i] += reached += x.spoils[i];
    }
    multiply<T>(n, V,
                {.c = x.out,
                 .c_row = x.v_row,
                 .scaled = {enters ? D : 0, x.q, x.d_row, 1, side.state, x.v_row},
                 .plain = {visit.inside ? n : 0, x.scores, x.c_row, 1, x.v, x.v_row},
                 .prefetch = &x.prefetch});
    for (Int i = 0; i < n; ++i) out_.add(x.tokens[i], x.out + i * x.v_row, 1, visit.first, visit.last, x.last[i]);
  }

  void score(const Visit& visit, Int n, Scratch& x) {
    bool on = p_.direction & (visit.from_right ? REVERSE : FORWARD);
    bool back = p_.direction & (visit.from_right ? FORWARD : REVERSE);
    x.block.scores(x.channels, n, x.q, x.k, on, back, x.scores);
    for (Int i = 0; i < n; ++i) {
      T* row = x.scores + i * x.c_row;
      row[i] = own_score(head_, x.tokens[i], x.q + i * x.d_row, x.k + i * x.d_row);
      Vec<T> total = {};
      for (Int j = 0; j < n; j += W<T>) total += load(row + j);
      x.den[i] = sum<T>(total);
    }
  }
};

}  // namespace
}  // namespace lion
