// A decay per channel with few values to a head, as Mamba has it, one: matrix products would be mostly padding. So the
// states go from token to token, a vector of channels at a time.
//
// den is one more value, which is 1 for every token: from here on a head has `values` = V or V + 1 of them. Its state
// is the sum of keys.
#pragma once

#include "chunk.h"

namespace lion {
namespace {

template <class T>
class Stepwise {
 public:
  static bool fits(const Problem& p) { return p.log_decay_channels > 1 && p.V < W<T> && !p.decay_between; }

  Stepwise(const Problem& p, bool backward) : p_(p), backward_(backward), sequences_(p) {
    d_row_ = round_up(p.D, W<T>);
    values_ = p.V + (has_den(p) || has_states(p));
    size_ = values_ * d_row_;
    groups_ = (p.H + GROUP - 1) / GROUP;
  }

  void run(Parallel parallel) {
    parallel(
        sequences_.size() * groups_, p_.threads, [](void* x, Int i) { static_cast<Stepwise*>(x)->group(i); }, this);
  }

  // sums = decayed old + more; what rounding takes is remembered, as by add_exactly, where decays are near 1
  static void add(Vec<T> old, Vec<T> grow, Vec<T> same, Vec<T> more, T* sums, T* lost) {
    Vec<T> change = old * grow + more - load(lost), near = old + change, far = more + (old * grow + old * same);
    Vec<T> rest = (near - old) - change;
    store(sums, same == 1 ? near : far);
    store(lost, same == 1 ? rest : Vec<T>{});
  }

 private:
  static constexpr Int GROUP = 16;     // heads of a task: their values lie side by side in memory
  static constexpr Int SEGMENT = 128;  // tokens whose states are kept at a time, on the way back

  struct State {  // both [values, d_row]
    T *sums, *lost;
  };

  // One way along one order.
  struct Walk {
    const Head<T>& head;
    Division<T> division;
    Int order;
    bool back, first, last;  // of all walks over these tokens
    bool own;                // this one has the tokens' weights of themselves, too

    Int token(Int step) const { return head.token(order, back ? head.n - 1 - step : step); }
  };

  // What a token brings.
  struct Token {
    Int t;
    const T *q, *k;              // [d_row]
    T v[W<T> + 1], g[W<T> + 1];  // values, and gradients of the nums and of den
  };

  struct Scratch {
    T *q, *k, *dq, *dk, *grow, *same, *row, *state, *adjoint, *states, *grows, *sames, *checkpoints;
  };

  void group(Int i) {
    NoDenormals guard;
    const auto& sequence = sequences_[i / groups_];
    Int first = i % groups_ * GROUP;
    thread_local Buffer memory;
    Int segments = backward_ ? (sequence.tokens + SEGMENT - 1) / SEGMENT : 0;
    auto take = [&](Arena& arena) {
      Scratch x;
      for (T** y : {&x.q, &x.k, &x.dq, &x.dk, &x.grow, &x.same, &x.row}) *y = arena.take<T>(d_row_);
      for (T** y : {&x.state, &x.adjoint}) *y = arena.take<T>(2 * size_);
      x.states = arena.take<T>(backward_ ? SEGMENT * size_ : 0);
      for (T** y : {&x.grows, &x.sames}) *y = arena.take<T>(backward_ ? SEGMENT * d_row_ : 0);
      x.checkpoints = arena.take<T>(segments * 2 * size_);
      return x;
    };
    Arena count;
    take(count);
    Arena arena(memory.reserve(count.used()));
    Scratch x = take(arena);
    for (Int h = first; h < std::min(p_.H, first + GROUP); ++h) one_head(sequence, h, x);
  }

  void one_head(const Sequences::Sequence& sequence, Int h, Scratch& x) {
    Head<T> head(p_, sequence, h);
    Buffer sums;
    Accumulator<T> out = accumulator(p_.out, head, p_.V, p_.wide_out), dq = accumulator(p_.dq, head, p_.D);
    Accumulator<T> dk = accumulator(p_.dk, head, p_.D), dv = accumulator(p_.dv, head, p_.V);
    Accumulator<T>* all[] = {&out, &dq, &dk, &dv};
    if (p_.dtype == BFLOAT16) {
      Int columns = backward_ ? 2 * p_.D + p_.V : p_.V;
      T* memory = static_cast<T*>(sums.reserve(static_cast<std::size_t>(sequence.length * columns + 1) * sizeof(T)));
      for (Accumulator<T>* y : all)
        if (y->out.half && (y == &out) != backward_) y->own = memory, memory += sequence.length * y->columns;
    }
    bool ways[] = {static_cast<bool>(p_.direction & FORWARD), static_cast<bool>(p_.direction & REVERSE)};
    for (Int order = 0; order < head.orders(); ++order)
      for (Int way = 0; way < 2; ++way) {
        if (!ways[way]) continue;
        bool own = way == 0 || !ways[0], end = way == 1 || !ways[1];
        Walk walk = {head,     Division<T>(p_, head.b, h), order,
                     way == 1, order == 0 && own,          order == head.orders() - 1 && end,
                     own};
        if (backward_)
          gradients(walk, dq, dk, dv, x);
        else
          outputs(walk, out, x);
      }
  }

  Accumulator<T> accumulator(const Rows& rows, const Head<T>& head, Int columns, bool wide = false) const {
    return {rows_of<T>(rows, p_, head.b, head.h, wide), nullptr, columns, head.sequence.start};
  }

  void outputs(const Walk& walk, const Accumulator<T>& out, Scratch& x) {
    State state = fresh(walk, p_.entering[walk.back], x.state);
    for (Int i = 0; i < walk.head.n; ++i) {
      Token y = read(walk, i, x);
      if (has_output(p_)) {
        T num[W<T> + 1];
        T own = walk.own ? own_score(walk.head, y.t, y.q, y.k) : T(0);
        for (Int v = 0; v < values_; ++v) num[v] = dot(y.q, state.sums + v * d_row_, p_.D) + own * y.v[v];
        finish(walk, y.t, num, out);
      }
      factors(walk, y.t, i == 0, x.grow, x.same);
      leave(y.k, y.v, x.grow, x.same, state);
    }
    put(walk, state, p_.leaving[walk.back]);
  }

  void finish(const Walk& walk, Int t, T* num, const Accumulator<T>& out) const {
    const Head<T>& head = walk.head;
    bool with_den = walk.division.with_den();
    T den = with_den ? num[p_.V] : T(0), last = 1;
    if (with_den && !walk.first) den += *at<T>(p_.den, head.b, t, head.h);
    if (walk.last)
      last = walk.division.complete(t, den, T(0));
    else if (with_den)
      *at<T>(p_.den, head.b, t, head.h) = den;
    out.add(t, num, 1, walk.first, walk.last, last);
  }

  // The states again, kept at every segment's start; then from the last token back, with the gradient of the state.
  void gradients(const Walk& walk, const Accumulator<T>& dq, const Accumulator<T>& dk, const Accumulator<T>& dv,
                 Scratch& x) {
    State state = fresh(walk, p_.entering[walk.back], x.state);
    State adjoint = fresh(walk, p_.dleaving[walk.back], x.adjoint);
    Int n = walk.head.n, segments = (n + SEGMENT - 1) / SEGMENT;
    for (Int i = 0; i < n; ++i) {
      if (i % SEGMENT == 0) std::copy(x.state, x.state + 2 * size_, x.checkpoints + i / SEGMENT * 2 * size_);
      if (i >= (segments - 1) * SEGMENT) break;
      Token y = read(walk, i, x);
      factors(walk, y.t, i == 0, x.grow, x.same);
      leave(y.k, y.v, x.grow, x.same, state);
    }
    for (Int s = segments - 1; s >= 0; --s) {
      Int begin = s * SEGMENT, end = std::min(n, begin + SEGMENT);
      const T* checkpoint = x.checkpoints + s * 2 * size_;
      std::copy(checkpoint, checkpoint + 2 * size_, x.state);
      for (Int i = begin; i < end; ++i) {
        T *grow = x.grows + (i - begin) * d_row_, *same = x.sames + (i - begin) * d_row_;
        std::copy(state.sums, state.sums + size_, x.states + (i - begin) * size_);
        Token y = read(walk, i, x);
        factors(walk, y.t, true, grow, same);
        leave(y.k, y.v, grow, same, state);
      }
      for (Int i = end - 1; i >= begin; --i) {
        Token y = read(walk, i, x);
        read_gradients(walk, y, x.row);
        T dvalues[W<T> + 1];
        back(walk, y, x.states + (i - begin) * size_, x.grows + (i - begin) * d_row_, x.sames + (i - begin) * d_row_,
             adjoint, dvalues, x);
        if (walk.own) own_gradients(walk, y, dvalues, x);
        if (has_output(p_)) dq.add(y.t, x.dq, 1, walk.first, walk.last);
        dk.add(y.t, x.dk, 1, walk.first, walk.last);
        dv.add(y.t, dvalues, 1, walk.first, walk.last);
      }
    }
    put(walk, adjoint, p_.dentering[walk.back]);
  }

  // Of one token: dq, dk, dvalues, and of its costs. `adjoint` is the gradient of the state behind it, then before it.
  void back(const Walk& walk, const Token& y, const T* before, const T* grow, const T* same, State& adjoint, T* dvalues,
            Scratch& x) {
    T* dcost = x.row;
    Vec<T> along[W<T> + 1] = {};
    for (Int d = 0; d < p_.D; d += W<T>) {
      Vec<T> q = load(y.q + d), k = load(y.k + d), g = load(grow + d), s = load(same + d);
      Vec<T> dq = {}, dk = {}, cost = {};
      for (Int v = 0; v < values_; ++v) {
        T *sums = adjoint.sums + v * d_row_ + d, *lost = adjoint.lost + v * d_row_ + d;
        Vec<T> state = load(before + v * d_row_ + d), left = load(sums), kept = left * g + left * s;
        cost += kept * (state + k * y.v[v]);
        dk += kept * y.v[v];
        along[v] += kept * k;
        dq += state * y.g[v];
        add(left, g, s, q * y.g[v], sums, lost);
      }
      store(x.dq + d, dq), store(x.dk + d, dk), store(dcost + d, cost);
    }
    for (Int v = 0; v < values_; ++v) dvalues[v] = sum<T>(along[v]);
    if (!p_.dlog_decay.data) return;
    T* to = at<T>(walk.head.dlog_decay(walk.back), walk.head.b, y.t, walk.head.decay_head(walk.order));
    bool first = (walk.own || walk.head.two_sided()) && (walk.order == 0 || p_.decay_per_order);
    for (Int d = 0; d < p_.D; ++d) to[d] = first ? dcost[d] : to[d] + dcost[d];
  }

  void own_gradients(const Walk& walk, const Token& y, T* dvalues, Scratch& x) const {
    const Head<T>& head = walk.head;
    const T one = 1;
    SelfWeight<T> weight = p_.self_weight.data ? SelfWeight<T>::of(head, y.t) : SelfWeight<T>{&one, 0};
    T own = weight(y.q, y.k, p_.D), down = 0;
    for (Int v = 0; v < values_; ++v) down += y.g[v] * y.v[v], dvalues[v] += own * y.g[v];
    lion::own_gradients(head, walk.order, y.t, down, y.q, y.k, x.dq, x.dk);
  }

  // What a walk begins with: nothing, or a state of the caller's.
  State fresh(const Walk& walk, const lion::State& from, T* memory) const {
    std::fill(memory, memory + 2 * size_, T(0));
    if (from.sums) each(walk, from, [&](T& given, Int d, Int v) { memory[v * d_row_ + d] = given; });
    return {memory, memory + size_};
  }

  void put(const Walk& walk, const State& state, const lion::State& to) const {
    if (to.sums) each(walk, to, [&](T& given, Int d, Int v) { given = state.sums[v * d_row_ + d]; });
  }

  template <class Each>
  void each(const Walk& walk, const lion::State& x, Each f) const {
    for (Int d = 0; d < p_.D; ++d) {
      for (Int v = 0; v < p_.V; ++v) f(walk.head.sums_of(x)[d * p_.V + v], d, v);
      f(walk.head.keys_of(x)[d], d, p_.V);
    }
  }

  Token read(const Walk& walk, Int step, Scratch& x) const {
    Token y;
    y.t = walk.token(step);
    y.q = row(p_.q, walk.head, y.t, x.q), y.k = row(p_.k, walk.head, y.t, x.k);
    small(p_.v, walk.head, y.t, false, y.v);
    y.v[p_.V] = 1;
    return y;
  }

  void read_gradients(const Walk& walk, Token& y, T* room) const {
    T dout[W<T>] = {};
    if (!has_output(p_)) return std::fill(y.g, y.g + p_.V + 1, T(0));
    small(p_.dout, walk.head, y.t, p_.wide_out, dout);
    T factor = walk.division.num_factor(y.t, T(0));
    for (Int v = 0; v < p_.V; ++v) y.g[v] = dout[v] * factor;
    y.g[p_.V] = walk.division.den_grad(y.t, T(0), dout, room);
  }

  // A row where it is, or if that is not how vectors can read it, a copy.
  const T* row(const Rows& rows, const Head<T>& head, Int t, T* copy) const {
    HeadRows from = rows_of<T>(rows, p_, head.b, head.h);
    if (lies_evenly<T>(from, p_.D, true)) return from.row<T>(t);
    gather<T>(from, &t, 1, p_.D, nullptr, copy, 0);
    return copy;
  }

  void small(const Rows& rows, const Head<T>& head, Int t, bool wide, T* to) const {
    HeadRows from = rows_of<T>(rows, p_, head.b, head.h, wide);
    for (Int v = 0; v < p_.V; ++v)
      to[v] = from.half ? static_cast<T>(widen(from.row<std::uint16_t>(t)[v])) : from.row<T>(t)[v];
  }

  // The decays of leaving a token. Fixed ones are found once.
  void factors(const Walk& walk, Int t, bool first, T* grow, T* same) const {
    const Rows& decays = walk.head.log_decay(walk.back);
    if (!first && decays.token == 0) return;
    const T* logs = at<T>(decays, walk.head.b, t, walk.head.decay_head(walk.order));
    bool fine = true;
    T most = most_cost<T>(p_);
    for (Int d = 0; d < p_.D; ++d) fine &= logs[d] <= most;
    if (!fine) throw std::domain_error("log_decay");
    exp_parts(logs, p_.D, grow, same);
  }

  // The state behind a token: what comes to it and what it adds, decayed.
  void leave(const T* k, const T* values, const T* grow, const T* same, State& state) const {
    for (Int d = 0; d < p_.D; d += W<T>) {
      Vec<T> g = load(grow + d), s = load(same + d), key = load(k + d), kept = key * g + key * s;
      for (Int v = 0; v < values_; ++v) {
        T *sums = state.sums + v * d_row_ + d, *lost = state.lost + v * d_row_ + d;
        add(load(sums), g, s, kept * values[v], sums, lost);
      }
    }
  }

  const Problem& p_;
  bool backward_;
  Sequences sequences_;
  Int d_row_, values_, size_, groups_;
};

}  // namespace
}  // namespace lion
