// Mamba's scan: a head per channel with one value each, queries and keys that all channels share, and decays that are
// the product of a step (per token and channel) and a rate (per channel and state). A vector is of neighbouring
// channels, so outputs and the gradients of values and steps need no sums across a vector, and nothing of the size of
// tokens x channels x states leaves the cache: decays are multiplied out as they are used, on the way back once more.
#pragma once

#include <vector>

#include "head.h"

namespace lion {
namespace {

template <class T>
class SelectiveScan {
 public:
  SelectiveScan(const Problem& p, bool backward)
      : p_(p), sequences_(p), backward_(backward), size_(CHANNELS * p.D), blocks_((p.H + CHANNELS - 1) / CHANNELS) {
    if (!backward) return;
    auto room = [](Buffer& in, Int count) {
      return static_cast<T*>(in.reserve(static_cast<std::size_t>(count) * sizeof(T)));
    };
    tokens_ = room(partial_tokens_, blocks_ * p.B * p.T * 2 * p.D);
    rates_ = room(partial_rates_, sequences_.size() * blocks_ * 2 * size_);
  }

  void run(Parallel parallel) {
    parallel(
        sequences_.size() * blocks_, p_.threads, [](void* x, Int i) { static_cast<SelectiveScan*>(x)->block(i); },
        this);
    if (!backward_) return;
    parallel(
        sequences_.size(), p_.threads, [](void* x, Int i) { static_cast<SelectiveScan*>(x)->add_tokens(i); }, this);
    add_rates();
  }

 private:
  static constexpr Int CHANNELS =
      64;                             // of a task, whatever the number of threads: its gradients of q and k are one sum
  static constexpr Int SEGMENT = 32;  // tokens whose states are kept at a time, on the way back
  using Mask = decltype(Vec<T>{} > Vec<T>{});

  // One way along one order, of a block of channels.
  struct Walk {
    const Head<T>& head;  // the block's first channel
    Int width, order;     // channels
    bool back, first;     // first: of all walks over these tokens
    bool own;             // this one has what tokens give themselves, too

    Int token(Int step) const { return head.token(order, back ? head.n - 1 - step : step); }
  };

  struct Scratch {                     // [D, CHANNELS] but for the rows
    T *rates, *state, *adjoint;        // state and adjoint: sums, and what rounding has taken
    T *drates, *drates_here;           // of both ways; and of a segment
    T *states, *factors;               // of a segment's tokens
    T* checkpoints;                    // the states at every segment's start
    T *sums_q, *sums_k;                // [D, W]
    T *v, *step, *dout, *out, *dstep;  // [CHANNELS], rows that cannot be read or written where they are
  };

  struct Token {
    Int t;
    const T *q, *k, *v, *step;
  };

  void block(Int i) {
    NoDenormals guard;
    const auto& sequence = sequences_[i / blocks_];
    thread_local Buffer memory;
    Arena count;
    scratch(count, sequence.tokens);
    Arena arena(memory.reserve(count.used()));
    Scratch x = scratch(arena, sequence.tokens);
    std::fill(x.v, x.v + 5 * CHANNELS, T(0));
    std::fill(x.drates, x.drates + (backward_ ? 2 * size_ : 0), T(0));

    Int first = i % blocks_ * CHANNELS;
    Head<T> head(p_, sequence, first);
    bool ways[] = {static_cast<bool>(p_.direction & FORWARD), static_cast<bool>(p_.direction & REVERSE)};
    for (Int order = 0; order < head.orders(); ++order)
      for (Int way = 0; way < 2; ++way) {
        if (!ways[way]) continue;
        bool own = way == 0 || !ways[0];
        Walk walk = {head, std::min(CHANNELS, p_.H - first), order, way == 1, order == 0 && own, own};
        read_rates(walk, x.rates);
        backward_ ? gradients(walk, x) : outputs(walk, x);
      }
    if (backward_) std::copy(x.drates, x.drates + 2 * size_, rates_ + i * 2 * size_);
  }

  Scratch scratch(Arena& arena, Int tokens) const {
    Int kept = backward_ ? SEGMENT : 0, segments = backward_ ? (tokens + SEGMENT - 1) / SEGMENT : 0;
    Scratch x;
    x.rates = arena.take<T>(size_);
    for (T** y : {&x.state, &x.adjoint}) *y = arena.take<T>(2 * size_);
    x.drates = arena.take<T>(2 * size_), x.drates_here = arena.take<T>(size_);
    for (T** y : {&x.states, &x.factors}) *y = arena.take<T>(kept * size_);
    x.checkpoints = arena.take<T>(segments * 2 * size_);
    for (T** y : {&x.sums_q, &x.sums_k}) *y = arena.take<T>(p_.D * W<T>);
    x.v = arena.take<T>(5 * CHANNELS);
    x.step = x.v + CHANNELS, x.dout = x.step + CHANNELS, x.out = x.dout + CHANNELS, x.dstep = x.out + CHANNELS;
    return x;
  }

  void read_rates(const Walk& walk, T* to) const {
    const Rows& rates = walk.back && walk.head.two_sided() ? p_.rate_reverse : p_.rate;
    std::fill(to, to + size_, T(0));
    bool fine = true;
    for (Int c = 0; c < walk.width; ++c) {
      const T* from = at<T>(rates, 0, 0, walk.head.h + c);
      for (Int d = 0; d < p_.D; ++d) to[d * CHANNELS + c] = from[d], fine &= finite(from[d]);
    }
    if (!fine) throw std::domain_error("rate");
  }

  static bool finite(T x) { return x >= 0 && x <= std::numeric_limits<T>::max(); }

  // A row of this block's channels: where it is, or if that is not how vectors can read it, a copy.
  const T* row(const Rows& rows, const Walk& walk, Int t, T* copy) const {
    const T* from = at<T>(rows, walk.head.b, t, walk.head.h);
    if (rows.head == 1 && walk.width % W<T> == 0) return from;
    for (Int c = 0; c < walk.width; ++c) copy[c] = from[c * rows.head];
    return copy;
  }

  Token read(const Walk& walk, Int t, Scratch& x) const {
    Int b = walk.head.b;
    return {t, at<T>(p_.q, b, t, 0), at<T>(p_.k, b, t, 0), row(p_.v, walk, t, x.v),
            row(walk.head.log_decay(walk.back), walk, t, x.step)};
  }

  // row of a result = or += the block's channels
  void put(const Rows& rows, const Walk& walk, Int t, const T* from, bool first) const {
    T* to = at<T>(rows, walk.head.b, t, walk.head.h);
    if (rows.head == 1 && walk.width % W<T> == 0)
      for (Int c = 0; c < walk.width; c += W<T>) store(to + c, first ? load(from + c) : load(to + c) + load(from + c));
    else
      for (Int c = 0; c < walk.width; ++c) to[c * rows.head] = first ? from[c] : to[c * rows.head] + from[c];
  }

  void outputs(const Walk& walk, Scratch& x) const {
    std::fill(x.state, x.state + 2 * size_, T(0));
    for (Int i = 0; i < walk.head.n; ++i) {
      Token y = read(walk, walk.token(i), x);
      leave<true, false>(walk, y, x);
      put(p_.out, walk, y.t, x.out, walk.first);
    }
  }

  // The states again, kept at every segment's start; then from the last token back, with the gradient of the state.
  void gradients(const Walk& walk, Scratch& x) const {
    for (T* y : {x.state, x.adjoint}) std::fill(y, y + 2 * size_, T(0));
    Int n = walk.head.n, segments = (n + SEGMENT - 1) / SEGMENT;
    for (Int i = 0; i < n; ++i) {
      if (i % SEGMENT == 0) std::copy(x.state, x.state + 2 * size_, x.checkpoints + i / SEGMENT * 2 * size_);
      if (i >= (segments - 1) * SEGMENT) break;
      leave<false, false>(walk, read(walk, walk.token(i), x), x);
    }
    for (Int s = segments - 1; s >= 0; --s) {
      Int begin = s * SEGMENT, end = std::min(n, begin + SEGMENT);
      const T* checkpoint = x.checkpoints + s * 2 * size_;
      std::copy(checkpoint, checkpoint + 2 * size_, x.state);
      for (Int i = begin; i < end; ++i) leave<false, true>(walk, read(walk, walk.token(i), x), x, i - begin);
      std::fill(x.drates_here, x.drates_here + size_, T(0));
      for (Int i = end - 1; i >= begin; --i) back(walk, read(walk, walk.token(i), x), i - begin, x);
      T* to = x.drates + (walk.back && walk.head.two_sided() ? size_ : 0);
      for (Int j = 0; j < size_; j += W<T>) store(to + j, load(to + j) + load(x.drates_here + j));
    }
  }

  // The state behind a token: what comes to it and what it adds, decayed. With `output` the token's output, from what
  // comes to it; with `keep` that and the decays stay in place `kept` of the segment.
  template <bool output, bool keep>
  void leave(const Walk& walk, const Token& y, Scratch& x, Int kept = 0) const {
    T own = output && walk.own ? dot_of(y.q, y.k) : T(0);
    Mask fine = Vec<T>{} == 0;
    for (Int c = 0; c < walk.width; c += W<T>) {
      Vec<T> value = load(y.v + c), step = load(y.step + c), out = value * own;
      fine &= (step >= 0) & (step <= std::numeric_limits<T>::max());
      for (Int d = 0; d < p_.D; ++d) {
        Int place = d * CHANNELS + c;
        Vec<T> log = -step * load(x.rates + place), f = decay_factor(log), old = load(x.state + place);
        Mask near = log > NEARLY_ONE<T>;
        if constexpr (output) out += old * y.q[d];
        if constexpr (keep) store(x.states + kept * size_ + place, old), store(x.factors + kept * size_ + place, f);
        Vec<T> more = value * y.k[d], rest = near ? more - load(x.state + size_ + place) : Vec<T>{};
        keep_sum(old, (old + more) * f + rest, near, x.state + place);
      }
      if constexpr (output) store(x.out + c, out);
    }
    for (Int j = 0; j < W<T>; ++j)
      if (!fine[j]) throw std::domain_error("step");
  }

  // sums = old (if the decay is near 1, else nothing) + change; what rounding takes is remembered
  void keep_sum(Vec<T> old, Vec<T> change, Mask near, T* sums) const {
    Vec<T> next = near ? old + change : change;
    store(sums, next), store(sums + size_, near ? (next - old) - change : Vec<T>{});
  }

  T dot_of(const T* x, const T* y) const {
    T total = 0;
    for (Int d = 0; d < p_.D; ++d) total += x[d] * y[d];
    return total;
  }

  // Of one token. `adjoint` is the gradient of the state behind it, then before it.
  void back(const Walk& walk, const Token& y, Int kept, Scratch& x) const {
    const T *g = row(p_.dout, walk, y.t, x.dout), *states = x.states + kept * size_,
            *factors = x.factors + kept * size_;
    T own = walk.own ? dot_of(y.q, y.k) : T(0);
    Vec<T> owns = {};
    std::fill(x.sums_q, x.sums_q + p_.D * W<T>, T(0)), std::fill(x.sums_k, x.sums_k + p_.D * W<T>, T(0));
    for (Int c = 0; c < walk.width; c += W<T>) {
      Vec<T> value = load(y.v + c), step = load(y.step + c), grad = load(g + c), dvalue = grad * own, dstep = {};
      owns += value * grad;
      for (Int d = 0; d < p_.D; ++d) {
        Int place = d * CHANNELS + c;
        T* adjoint = x.adjoint + place;
        Vec<T> rate = load(x.rates + place), f = load(factors + place), state = load(states + place);
        Mask near = -step * rate > NEARLY_ONE<T>;
        Vec<T> behind = load(adjoint), change = behind * f, left = near ? behind + change : change;
        store(x.sums_q + d * W<T>, load(x.sums_q + d * W<T>) + state * grad);
        store(x.sums_k + d * W<T>, load(x.sums_k + d * W<T>) + left * value);
        dvalue += left * y.k[d];
        Vec<T> cost = left * (state + value * y.k[d]);
        dstep -= cost * rate;
        store(x.drates_here + place, load(x.drates_here + place) - cost * step);
        Vec<T> more = grad * y.q[d], rest = near ? more - load(adjoint + size_) : more;
        keep_sum(behind, change + rest, near, adjoint);
      }
      store(x.out + c, dvalue), store(x.dstep + c, dstep);
    }
    put(p_.dv, walk, y.t, x.out, walk.first);
    put(walk.head.dlog_decay(walk.back), walk, y.t, x.dstep,
        walk.first || (walk.back && walk.head.two_sided() && !walk.order));
    T total = walk.own ? sum<T>(owns) : T(0);
    T* to = tokens_ + ((walk.head.h / CHANNELS * p_.B + walk.head.b) * p_.T + y.t) * 2 * p_.D;
    for (Int d = 0; d < p_.D; ++d) {
      T dq = sum<T>(load(x.sums_q + d * W<T>)) + y.k[d] * total,
        dk = sum<T>(load(x.sums_k + d * W<T>)) + y.q[d] * total;
      to[d] = walk.first ? dq : to[d] + dq, to[p_.D + d] = walk.first ? dk : to[p_.D + d] + dk;
    }
  }

  // The gradients of q and k of a sequence, summed over the blocks of channels.
  void add_tokens(Int i) const {
    Head<T> head(p_, sequences_[i], 0);
    for (Int place = 0; place < head.n; ++place) {
      Int t = head.token(0, place);
      for (const Rows* rows : {&p_.dq, &p_.dk}) {
        T* to = at<T>(*rows, head.b, t, 0);
        const T* from = tokens_ + (head.b * p_.T + t) * 2 * p_.D + (rows == &p_.dk ? p_.D : 0);
        std::copy(from, from + p_.D, to);
        for (Int block = 1; block < blocks_; ++block)
          for (Int d = 0; d < p_.D; ++d) to[d] += from[block * p_.B * p_.T * 2 * p_.D + d];
      }
    }
  }

  // And those of the rates, over the sequences.
  void add_rates() const {
    for (bool reverse : {false, true}) {
      const Rows& rows = reverse ? p_.drate_reverse : p_.drate;
      if (!rows.data) continue;
      for (Int h = 0; h < p_.H; ++h)
        for (Int d = 0; d < p_.D; ++d) {
          T total = 0;
          for (Int s = 0; s < sequences_.size(); ++s)
            total += rates_[((s * blocks_ + h / CHANNELS) * 2 + reverse) * size_ + d * CHANNELS + h % CHANNELS];
          at<T>(rows, 0, 0, h)[d] = total;
        }
    }
  }

  const Problem& p_;
  Sequences sequences_;
  bool backward_;
  Int size_, blocks_;
  Buffer partial_tokens_, partial_rates_;
  T* tokens_ = nullptr;  // [blocks, B, T, 2, D]: gradients of q and k
  T* rates_ = nullptr;   // [sequences, blocks, 2, D, CHANNELS]
};

}  // namespace
}  // namespace lion
