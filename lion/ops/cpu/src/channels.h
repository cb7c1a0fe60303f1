// A decay per channel: the decays of a block's tokens, its scores, and their gradient.
//
// Score ij is a sum over channels that have all decayed differently on the way from j to i: no mask can be
// multiplied in afterwards. But seen from a border between them it is a product of two rows, the query's decayed
// from the border to i and the key's decayed from j to the border, and both only ever decay. So a block is
// halved, what crosses its middle is a matrix product, and the halves are blocks; at the end of it pairs.
#pragma once

#include "passes.h"

namespace lion {
namespace {

// The decays of leaving a block's tokens, in two parts each as Factor's, and of crossing the whole block.
template <class T>
class Channels {
 public:
  void take(Arena& arena, const Problem& p, Int chunk) {
    row_ = leading<T>(p.D), D_ = p.D;
    for (T** x : {&grow_, &same_}) *x = arena.take<T>(chunk * row_);
    for (T** x : {&total_, &cross_grow_, &cross_same_}) *x = arena.take<T>(row_);
  }

  void read(const Head<T>& head, Int order, bool reverse, const Int* tokens, Int n) {
    std::fill(total_, total_ + row_, T(0));
    T most = most_cost<T>(head.p);
    for (Int i = 0; i < n; ++i) {
      const T* logs = at<T>(head.log_decay(reverse), head.b, tokens[i], head.decay_head(order));
      auto wrong = Vec<T>{} != 0;
      for (Int d = 0; d < D_; d += W<T>) {
        Vec<T> x = load_logs(logs + d, D_ - d);
        wrong |= !(x <= most);
        store(total_ + d, load(total_ + d) + x);
      }
      for (Int j = 0; j < W<T>; ++j)
        if (wrong[j]) throw std::domain_error("log_decay");
      if (i == 0 || !head.fixed_decay(reverse))
        exp_parts(logs, D_, grow_ + i * row_, same_ + i * row_);
      else {
        std::copy(grow_, grow_ + row_, grow_ + i * row_);
        std::copy(same_, same_ + row_, same_ + i * row_);
      }
    }
    exp_parts(total_, D_, cross_grow_, cross_same_);
  }

  // Rows of tokens times what a walk has paid when it gets there, from the first token on or from the last back, with
  // the token's own cost or without. `kept`, if given, gets the factors; w is scratch.
  void along(Int n, bool from_last, bool with_own, T* rows, T* w, T* kept = nullptr) const {
    std::fill(w, w + row_, T(1));
    for (Int step = 0; step < n; ++step) {
      Int i = from_last ? n - 1 - step : step;
      if (with_own) leave(i, w, w);
      for (Int d = 0; d < D_; d += W<T>) {
        Vec<T> weight = load(w + d);
        store(rows + i * row_ + d, load(rows + i * row_ + d) * weight);
        if (kept) store(kept + i * row_ + d, weight);
      }
      if (!with_own) leave(i, w, w);
    }
  }

  // to = x after leaving token i; both may be the same
  void leave(Int i, const T* x, T* to) const {
    for (Int d = 0; d < D_; d += W<T>) store(to + d, leave(i, d, load(x + d)));
  }
  Vec<T> leave(Int i, Int d, Vec<T> x) const { return x * load(grow_ + i * row_ + d) + x * load(same_ + i * row_ + d); }
  T cross(Int d) const { return cross_grow_[d] + cross_same_[d]; }

  // A state after crossing the block; its rows or its columns are the channels.
  void cross_rows(T* state, T* lost, Int row, Int columns) const {
    for (Int d = 0; d < D_; ++d)
      for (Int j = 0; j < columns; j += W<T>) {
        Int place = d * row + j;
        Vec<T> none = {};
        store(state + place,
              add_exactly(load(state + place), Factor<T>{cross_grow_[d], cross_same_[d]}, none, lost + place));
      }
  }
  void cross_columns(T* state, T* lost, Int row, Int rows) const {
    for (Int i = 0; i < rows; ++i)
      for (Int d = 0; d < D_; d += W<T>) {
        T *to = state + i * row + d, *left = lost + i * row + d;
        Vec<T> x = load(to), grow = load(cross_grow_ + d), same = load(cross_same_ + d);
        Vec<T> change = x * grow + (same == 1 ? -load(left) : x * same);
        Vec<T> total = same == 1 ? x + change : change;
        store(left, same == 1 ? (total - x) - change : Vec<T>{});
        store(to, total);
      }
  }

 private:
  T *grow_, *same_;  // [n, row]
  T *total_, *cross_grow_, *cross_same_;
  Int row_, D_;
};

// The decays of both walks through a block: the same, unless each direction has its own.
template <class T>
class BothWays {
 public:
  void take(Arena& arena, const Problem& p, Int chunk) {
    two_sided_ = p.log_decay_reverse.data;
    ways_[0].take(arena, p, chunk);
    if (two_sided_) ways_[1].take(arena, p, chunk);
  }
  void read(const Head<T>& head, Int order, bool from_right, const Int* tokens, Int n) {
    ways_[0].read(head, order, from_right, tokens, n);
    if (two_sided_) ways_[1].read(head, order, !from_right, tokens, n);
  }
  const Channels<T>& on() const { return ways_[0]; }
  const Channels<T>& back() const { return ways_[two_sided_]; }

 private:
  bool two_sided_;
  Channels<T> ways_[2];
};

// The scores of a block of tokens and what follows from their gradient.
template <class T>
class ChannelScores {
 public:
  Int d_row, c_row;

  void take(Arena& arena, const Problem& p, Int chunk) {
    Int rows = round_up(chunk, W<T>);
    D_ = p.D, d_row = leading<T>(p.D), c_row = leading<T>(chunk), between_ = p.decay_between;
    for (T** x : {&decayed_, &weights_, &part_}) *x = arena.take<T>(rows * d_row);
    transposed_ = arena.take<T>(round_up(p.D, W<T>) * c_row);
    for (T** x : {&running_, &ones_}) *x = arena.take<T>(d_row);
  }

  // q, k [n, d_row] -> scores [n, c_row]: below the diagonal if `on`, above it if `back`, 0 elsewhere
  void scores(const BothWays<T>& channels, Int n, const T* q, const T* k, bool on, bool back, T* scores) {
    for (Int i = 0; i < n; ++i) std::fill(scores + i * c_row, scores + i * c_row + round_up(n, W<T>), T(0));
    for (bool reversed : {false, true})
      if (reversed ? back : on) {
        start(channels, reversed, q, k);
        halve(0, n, [&](Int first, Int middle, Int last) {
          if (middle == last)
            pair_scores(first, last - first, reversed, scores);
          else {
            Corner c = corner(first, middle, last, reversed);
            transpose(decayed_ + c.send * d_row, d_row, c.senders, D_, transposed_, c_row);
            multiply<T>(c.receivers, c.senders,
                        {.c = scores + c.receive * c_row + c.send,
                         .c_row = c_row,
                         .plain = {D_, decayed_ + c.receive * d_row, d_row, 1, transposed_, c_row}});
          }
        });
      }
  }

  // Adds to dq, dk and the costs' gradients, on and back [n, d_row], what follows from dscores.
  void gradients(const BothWays<T>& channels, Int n, const T* q, const T* k, bool on, bool back, const T* dscores,
                 T* dq, T* dk, T* dcost_on, T* dcost_back) {
    for (bool reversed : {false, true})
      if (reversed ? back : on) {
        start(channels, reversed, q, k);
        T* dcost = reversed ? dcost_back : dcost_on;
        halve(0, n, [&](Int first, Int middle, Int last) {
          if (middle == last)
            pair_gradients(first, last - first, reversed, dscores, dq, dk, dcost);
          else
            corner_gradients(corner(first, middle, last, reversed), reversed, dscores, dq, dk, dcost);
        });
      }
  }

 private:
  // Tokens on one side of a middle send to those on the other.
  struct Corner {
    Int receive, receivers, send, senders;  // first and count
  };

  void start(const BothWays<T>& channels, bool reversed, const T* q, const T* k) {
    channels_ = reversed ? &channels.back() : &channels.on(), q_ = q, k_ = k;
    std::fill(ones_, ones_ + d_row, T(1));
  }

  // Blocks down to a vector's length, whose middle is their end. Middles are on whole vectors, so that the padding
  // of a product's columns never falls on another block.
  template <class Each>
  void halve(Int first, Int last, Each each) {
    if (last - first <= W<T>) return each(first, last, last);
    Int middle = first + round_up((last - first) / 2, W<T>);
    each(first, middle, last);
    halve(first, middle, each);
    halve(middle, last, each);
  }

  // The tokens of a range by their distance from the end where the middle is.
  static Int outward(Int first, Int count, bool upwards, Int step) {
    return upwards ? first + step : first + count - 1 - step;
  }

  // decayed = the receivers' queries and the senders' keys as the middle sees them, weights = what they decayed by
  Corner corner(Int first, Int middle, Int last, bool reversed) {
    Corner c = reversed ? Corner{first, middle - first, middle, last - middle}
                        : Corner{middle, last - middle, first, middle - first};
    const T* w = ones_;
    for (Int step = 0; step < c.receivers; ++step) {  // pays for those it passes
      Int i = outward(c.receive, c.receivers, !reversed, step);
      product(q_ + i * d_row, w, weights_ + i * d_row, decayed_ + i * d_row);
      channels_->leave(i, w, running_);
      w = running_;
    }
    w = ones_;
    for (Int step = 0; step < c.senders; ++step) {  // and for itself, but between tokens
      Int j = outward(c.send, c.senders, reversed, step);
      if (between_) product(k_ + j * d_row, w, weights_ + j * d_row, decayed_ + j * d_row);
      channels_->leave(j, w, running_);
      w = running_;
      if (!between_) product(k_ + j * d_row, w, weights_ + j * d_row, decayed_ + j * d_row);
    }
    return c;
  }

  void product(const T* x, const T* w, T* kept, T* to) const {
    for (Int d = 0; d < D_; d += W<T>) {
      Vec<T> weight = load(w + d);
      store(kept + d, weight);
      store(to + d, load(x + d) * weight);
    }
  }

  void corner_gradients(Corner c, bool reversed, const T* dscores, T* dq, T* dk, T* dcost) {
    const T* block = dscores + c.receive * c_row + c.send;
    multiply<T>(c.receivers, D_,
                {.c = part_ + c.receive * d_row,
                 .c_row = d_row,
                 .plain = {c.senders, block, c_row, 1, decayed_ + c.send * d_row, d_row}});
    multiply<T>(c.senders, D_,
                {.c = part_ + c.send * d_row,
                 .c_row = d_row,
                 .plain = {c.receivers, block, 1, c_row, decayed_ + c.receive * d_row, d_row}});
    // From the farthest inwards: a token's cost is paid by all that are farther, and the senders' by themselves too, if
    // a key pays for its own token.
    std::fill(running_, running_ + d_row, T(0));
    for (Int step = c.receivers - 1; step >= 0; --step)
      collect(outward(c.receive, c.receivers, !reversed, step), false, dq, dcost);
    std::fill(running_, running_ + d_row, T(0));
    for (Int step = c.senders - 1; step >= 0; --step)
      collect(outward(c.send, c.senders, reversed, step), !between_, dk, dcost);
  }

  void collect(Int i, bool itself, T* grad, T* dcost) {
    for (Int d = 0; d < D_; d += W<T>) {
      Int at = i * d_row + d;
      Vec<T> dy = load(part_ + at), before = load(running_ + d), after = before + dy * load(decayed_ + at);
      store(running_ + d, after);
      store(dcost + at, load(dcost + at) + (itself ? after : before));
      store(grad + at, load(grad + at) + dy * load(weights_ + at));
    }
  }

  // Every pair of a small block for itself. weights_ are what the channels have decayed by, from the tokens that have
  // been met to the one that is.

  void pair_scores(Int first, Int count, bool reversed, T* scores) {
    for (Int step = 0; step < count; ++step) {
      Int i = outward(first, count, !reversed, step);
      for (Int earlier = 0; earlier < step; ++earlier) {
        Int j = outward(first, count, !reversed, earlier);
        T* w = weights_ + j * d_row;
        Vec<T> total = {};
        for (Int d = 0; d < D_; d += W<T>) {
          Vec<T> weight = load(w + d);
          total += load(q_ + i * d_row + d) * load(k_ + j * d_row + d) * weight;
          store(w + d, channels_->leave(i, d, weight));
        }
        scores[i * c_row + j] = sum<T>(total);
      }
      if (between_)
        std::copy(ones_, ones_ + d_row, weights_ + i * d_row);
      else
        channels_->leave(i, ones_, weights_ + i * d_row);
    }
  }

  // What a token gets from those before it passes over each of them: `passing` is the sum over all up to there.
  void pair_gradients(Int first, Int count, bool reversed, const T* dscores, T* dq, T* dk, T* dcost) {
    for (Int d = 0; d < D_; d += W<T>)
      for (Int step = 0; step < count; ++step) {
        Int i = outward(first, count, !reversed, step);
        Vec<T> q = load(q_ + i * d_row + d), dq_i = load(dq + i * d_row + d), passing = {};
        for (Int earlier = 0; earlier < step; ++earlier) {
          Int j = outward(first, count, !reversed, earlier), at = j * d_row + d;
          Vec<T> weight = load(weights_ + at), k = load(k_ + at), grad = weight * dscores[i * c_row + j];
          store(weights_ + at, channels_->leave(i, d, weight));
          dq_i += k * grad;
          grad *= q;
          Vec<T> own = k * grad, before = passing;
          passing += own;
          store(dk + at, load(dk + at) + grad);
          store(dcost + at, load(dcost + at) + (between_ ? before : passing));
        }
        store(dq + i * d_row + d, dq_i);
        store(weights_ + i * d_row + d, between_ ? splat(T(1)) : channels_->leave(i, d, splat(T(1))));
      }
  }

  const Channels<T>* channels_ = nullptr;
  const T *q_ = nullptr, *k_ = nullptr;
  Int D_;
  bool between_;
  T *decayed_, *weights_, *part_;  // [n, d_row]
  T* transposed_;
  T *running_, *ones_;  // [d_row]
};

}  // namespace
}  // namespace lion
