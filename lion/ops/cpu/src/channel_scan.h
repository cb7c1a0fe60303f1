// A head for every channel with one value each and a decay per state, as Mamba has it: neighbouring heads go from token
// to token together, so that what lies side by side in memory is read side by side. Stepwise does the same head by
// head, with norms, weights and states of the caller.
#pragma once

#include "stepwise.h"

namespace lion {
namespace {

template <class T>
class ChannelScan {
 public:
  static bool fits(const Problem& p) {
    bool plain = p.norm == NONE && !p.self_weight.data && !p.decay_between && p.dtype != BFLOAT16 && !has_states(p);
    return plain && p.log_decay_channels > 1 && p.V == 1 && p.D % W<T> == 0;
  }

  ChannelScan(const Problem& p, bool backward) : p_(p), backward_(backward), sequences_(p) {
    size_ = W<T> * p.D, groups_ = (p.H + W<T> - 1) / W<T>;
  }

  void run(Parallel parallel) {
    parallel(
        sequences_.size() * groups_, p_.threads, [](void* x, Int i) { static_cast<ChannelScan*>(x)->group(i); }, this);
  }

 private:
  static constexpr Int SEGMENT = 64;  // tokens whose states are kept at a time, on the way back

  // One way along one order, of some neighbouring heads.
  struct Walk {
    const Head<T>& head;  // the first
    Int heads, order;
    bool back, first;  // of all walks over these tokens
    bool own;          // this one has what tokens give themselves, too

    Int token(Int step) const { return head.token(order, back ? head.n - 1 - step : step); }
  };

  struct Scratch {
    T *state, *adjoint;    // [2, heads, D]: sums, and what rounding has taken
    T *products, *turned;  // [heads, W]
    T *states, *factors;   // of a segment's tokens: [heads, D], and [2, heads, D]: grow and same
    T* checkpoints;        // the state at every segment's start
  };

  // The rows of a tensor for a token, by head.
  struct Rows1 {
    T* data;
    Int head;

    T* operator()(Int h) const { return data + h * head; }
  };
  Rows1 rows(const Rows& x, const Walk& walk, Int t) const { return {at<T>(x, walk.head.b, t, walk.head.h), x.head}; }
  Rows1 decays(const Rows& x, const Walk& walk, Int t) const {
    return {at<T>(x, walk.head.b, t, walk.head.decay_head(walk.order)), x.head};
  }

  void group(Int i) {
    NoDenormals guard;
    const auto& sequence = sequences_[i / groups_];
    thread_local Buffer memory;
    Int kept = backward_ ? SEGMENT : 0, segments = backward_ ? (sequence.tokens + SEGMENT - 1) / SEGMENT : 0;
    auto take = [&](Arena& arena) {
      Scratch x;
      for (T** y : {&x.state, &x.adjoint}) *y = arena.take<T>(2 * size_);
      for (T** y : {&x.products, &x.turned}) *y = arena.take<T>(W<T> * W<T>);
      x.states = arena.take<T>(kept * size_), x.factors = arena.take<T>(std::max<Int>(kept, 1) * 2 * size_);
      x.checkpoints = arena.take<T>(segments * 2 * size_);
      return x;
    };
    Arena count;
    take(count);
    Arena arena(memory.reserve(count.used()));
    Scratch x = take(arena);

    Int first = i % groups_ * W<T>;
    Head<T> head(p_, sequence, first);
    bool ways[] = {static_cast<bool>(p_.direction & FORWARD), static_cast<bool>(p_.direction & REVERSE)};
    for (Int order = 0; order < head.orders(); ++order)
      for (Int way = 0; way < 2; ++way) {
        if (!ways[way]) continue;
        bool own = way == 0 || !ways[0];
        Walk walk = {head, std::min(W<T>, p_.H - first), order, way == 1, order == 0 && own, own};
        backward_ ? gradients(walk, x) : outputs(walk, x);
      }
  }

  void outputs(const Walk& walk, Scratch& x) const {
    std::fill(x.state, x.state + 2 * size_, T(0));
    for (Int i = 0; i < walk.head.n; ++i) {
      Int t = walk.token(i);
      Rows1 q = rows(p_.q, walk, t), k = rows(p_.k, walk, t), v = rows(p_.v, walk, t);
      for (Int h = 0; h < walk.heads; ++h) {
        Vec<T> product = {};
        T own = walk.own ? *v(h) : T(0);
        for (Int d = 0; d < p_.D; d += W<T>)
          product += load(q(h) + d) * (load(x.state + h * p_.D + d) + load(k(h) + d) * own);
        store(x.products + h * W<T>, product);
      }
      add_sums(walk, rows(p_.out, walk, t), x);
      leave(walk, t, x.state, x.factors);
    }
  }

  // The states again, kept at every segment's start; then from the last token back, with the gradient of the state.
  void gradients(const Walk& walk, Scratch& x) const {
    for (T* y : {x.state, x.adjoint}) std::fill(y, y + 2 * size_, T(0));
    Int n = walk.head.n, segments = (n + SEGMENT - 1) / SEGMENT;
    for (Int i = 0; i < n; ++i) {
      if (i % SEGMENT == 0) std::copy(x.state, x.state + 2 * size_, x.checkpoints + i / SEGMENT * 2 * size_);
      if (i >= (segments - 1) * SEGMENT) break;
      leave(walk, walk.token(i), x.state, x.factors);
    }
    for (Int s = segments - 1; s >= 0; --s) {
      Int begin = s * SEGMENT, end = std::min(n, begin + SEGMENT);
      const T* checkpoint = x.checkpoints + s * 2 * size_;
      std::copy(checkpoint, checkpoint + 2 * size_, x.state);
      for (Int i = begin; i < end; ++i) {
        std::copy(x.state, x.state + size_, x.states + (i - begin) * size_);
        leave(walk, walk.token(i), x.state, x.factors + (i - begin) * 2 * size_);
      }
      for (Int i = end - 1; i >= begin; --i)
        back(walk, walk.token(i), x.states + (i - begin) * size_, x.factors + (i - begin) * 2 * size_, x);
    }
  }

  // Of one token. `adjoint` is the gradient of the state behind it, then before it.
  void back(const Walk& walk, Int t, const T* before, const T* factors, Scratch& x) const {
    Rows1 q = rows(p_.q, walk, t), k = rows(p_.k, walk, t), v = rows(p_.v, walk, t), g = rows(p_.dout, walk, t);
    Rows1 dq = rows(p_.dq, walk, t), dk = rows(p_.dk, walk, t), dcost = {};
    const Rows& costs = walk.head.dlog_decay(walk.back);
    if (costs.data) dcost = decays(costs, walk, t);
    bool first_cost = (walk.own || walk.head.two_sided()) && (walk.order == 0 || p_.decay_per_order);
    for (Int h = 0; h < walk.heads; ++h) {
      T value = *v(h), grad = *g(h), own = walk.own ? value * grad : T(0), own_grad = walk.own ? grad : T(0);
      Vec<T> product = {};
      for (Int d = 0; d < p_.D; d += W<T>) {
        Int place = h * p_.D + d;
        Vec<T> grow = load(factors + place), same = load(factors + size_ + place), state = load(before + place);
        Vec<T> query = load(q(h) + d), key = load(k(h) + d), behind = load(x.adjoint + place);
        Vec<T> kept = behind * grow + behind * same;
        put(dq(h) + d, state * grad + key * own, walk.first);
        put(dk(h) + d, kept * value + query * own, walk.first);
        if (dcost.data) put(dcost(h) + d, kept * (state + key * value), first_cost);
        product += key * (kept + query * own_grad);
        Stepwise<T>::add(behind, grow, same, query * grad, x.adjoint + place, x.adjoint + size_ + place);
      }
      store(x.products + h * W<T>, product);
    }
    add_sums(walk, rows(p_.dv, walk, t), x);
  }

  // The state behind a token: what comes to it and what it adds, decayed. factors: room for the decays, grow and same
  void leave(const Walk& walk, Int t, T* state, T* factors) const {
    Rows1 k = rows(p_.k, walk, t), v = rows(p_.v, walk, t), logs = decays(walk.head.log_decay(walk.back), walk, t);
    auto wrong = Vec<T>{} != 0;
    for (Int h = 0; h < walk.heads; ++h) {
      T value = *v(h);
      for (Int d = 0; d < p_.D; d += W<T>) {
        Int place = h * p_.D + d;
        Vec<T> log = load(logs(h) + d), key = load(k(h) + d), grow, same;
        wrong |= !(log <= 0);
        exp_parts(log, grow, same);
        store(factors + place, grow), store(factors + size_ + place, same);
        Stepwise<T>::add(load(state + place), grow, same, (key * grow + key * same) * value, state + place,
                         state + size_ + place);
      }
    }
    for (Int j = 0; j < W<T>; ++j)
      if (wrong[j]) throw std::domain_error("log_decay");
  }

  static void put(T* to, Vec<T> x, bool first) { store(to, first ? x : load(to) + x); }

  // What a row of products adds up to is a head's.
  void add_sums(const Walk& walk, Rows1 to, Scratch& x) const {
    transpose(x.products, W<T>, walk.heads, W<T>, x.turned, W<T>);
    Vec<T> total = {};
    for (Int i = 0; i < W<T>; ++i) total += load(x.turned + i * W<T>);
    for (Int h = 0; h < walk.heads; ++h) *to(h) = walk.first ? total[h] : *to(h) + total[h];
  }

  const Problem& p_;
  bool backward_;
  Sequences sequences_;
  Int size_, groups_;
};

}  // namespace
}  // namespace lion
