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
  Ahead ahead;

  void take(Pieces& pieces, const Problem& p, Int chunk) {
    Int rows = round_up(chunk, W<T>);
    tokens = pieces.take<Int>(chunk);
    channels.take(pieces, p, chunk);
    block.take(pieces, p, chunk);
    d_row = block.d_row, c_row = block.c_row, v_row = leading<T>(p.V);
    for (T** x : {&q, &k}) *x = pieces.take<T>(rows * d_row);
    for (T** x : {&v, &out}) *x = pieces.take<T>(rows * v_row);
    scores = pieces.take<T>(rows * c_row);
    for (T** x : {&den, &last, &spoils}) *x = pieces.take<T>(rows);
    running = pieces.take<T>(d_row);
  }
};

template <class T>
class DiagonalForward {
 public:
  using Scratch = DiagonalForwardScratch<T>;
  static constexpr bool all_orders_at_once = false;

  explicit DiagonalForward(const Head<T>& head) : head_(head), p_(head.p), division_(p_, head.b, head.h) {
    Int matrix = p_.D * leading<T>(p_.V);
    state_size_ = matrix + leading<T>(p_.D);
    T* memory = static_cast<T*>(memory_.reserve(static_cast<std::size_t>(4 * state_size_) * sizeof(T)));
    for (Side& side : sides_) {
      side = {memory, memory + matrix, memory + state_size_, memory + state_size_ + matrix};
      memory += 2 * state_size_;
    }
    out_ = {rows_of<T>(p_.out, p_, head.b, head.h, p_.wide_out), nullptr, p_.V, head.sequence.start};
    if (out_.out.half)
      out_.own = static_cast<T*>(sums_.reserve(static_cast<std::size_t>(head.sequence.length * p_.V + 1) * sizeof(T)));
  }

  bool walks(bool from_right) const {
    if (head_.one_block()) return from_right ? p_.direction == BACKWARD : p_.direction != BACKWARD;
    return p_.direction & (from_right ? BACKWARD : FORWARD);
  }

  void start(bool from_right) {
    Side& s = sides_[from_right];
    std::fill(s.state, s.state + 2 * state_size_, T(0));
    enter_state(head_, from_right, s.state, leading<T>(p_.V), s.sum);
  }

  void expect(const Visit& visit, Int later, Scratch& x) {
    expect_rows(head_, visit, later,
                {{&p_.k, p_.D},
                 {&p_.v, p_.V},
                 {&p_.q, p_.D},
                 {&head_.log_decay(visit.from_right), p_.D, true},
                 {&p_.out, p_.V, p_.wide_out}},
                x.ahead);
  }

  void visit(const Visit& visit, Scratch& x) {
    Side& side = sides_[visit.from_right];
    Int n = head_.size_of(visit.chunk), D = p_.D, V = p_.V;
    const State& leaving = p_.leaving[visit.from_right];
    bool enters = visit.enter || p_.entering[visit.from_right].sums;
    head_.tokens_of(visit.order, visit.chunk, visit.from_right, x.tokens);
    x.channels.read(head_, visit.order, visit.from_right, x.tokens, n);
    if (has_output(p_)) gather<T>(rows_of<T>(p_.q, p_, head_.b, head_.h), x.tokens, n, D, nullptr, x.q, x.d_row);
    gather<T>(rows_of<T>(p_.k, p_, head_.b, head_.h), x.tokens, n, D, nullptr, x.k, x.d_row);
    gather<T>(rows_of<T>(p_.v, p_, head_.b, head_.h), x.tokens, n, V, nullptr, x.v, x.v_row);
    bool spoiled = p_.direction != BOTH && set_spoiled_apart(n, V, x.v, x.v_row, x.spoils);
    if (has_output(p_)) attend(visit, n, enters, spoiled, side, x);
    if (!visit.leave && !leaving.sums) return;
    x.channels.on().along(n, true, true, x.k, x.running);
    x.channels.on().cross_rows(side.state, side.lost_state, x.v_row, V);
    multiply<T>(D, V,
                {.c = side.state,
                 .c_row = x.v_row,
                 .plain = {n, x.k, 1, x.d_row, x.v, x.v_row},
                 .fresh = false,
                 .ahead = &x.ahead,
                 .lost = side.lost_state});
    if (spoiled) std::fill(side.state, side.state + D * x.v_row, std::numeric_limits<T>::quiet_NaN());
    if (division_.with_den() || leaving.keys) {
      x.channels.on().cross_columns(side.sum, side.lost_sum, 0, 1);
      add_columns<T>(x.k, x.d_row, n, D, nullptr, {0, 1}, side.sum, side.lost_sum);
    }
    if (!visit.leave) leave_state(head_, visit.from_right, side.state, x.v_row, side.sum);
  }

  void visit_all(Scratch&) {}

 private:
  struct Side {
    T *state, *sum, *lost_state, *lost_sum;  // as Forward's
  };

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
                 .ahead = &x.ahead});
    for (Int i = 0; i < n; ++i) out_.add(x.tokens[i], x.out + i * x.v_row, 1, visit.first, visit.last, x.last[i]);
  }

  void score(const Visit& visit, Int n, Scratch& x) {
    bool on = p_.direction & (visit.from_right ? BACKWARD : FORWARD);
    bool back = p_.direction & (visit.from_right ? FORWARD : BACKWARD);
    x.block.scores(x.channels, n, x.q, x.k, on, back, x.scores);
    for (Int i = 0; i < n; ++i) {
      T* row = x.scores + i * x.c_row;
      row[i] = own_score(head_, x.tokens[i], x.q + i * x.d_row, x.k + i * x.d_row);
      Vec<T> total = {};
      for (Int j = 0; j < n; j += W<T>) total += load(row + j);
      x.den[i] = sum<T>(total);
    }
  }

  const Head<T>& head_;
  const Problem& p_;
  Division<T> division_;
  Int state_size_;
  Side sides_[2];
  Growing<T> out_;
  Buffer memory_, sums_;
};

}  // namespace
}  // namespace lion
