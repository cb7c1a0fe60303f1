// What the passes over a head's chunks have in common: the states of both sides, how they start and end, and where the
// results go.
#pragma once

#include "chunk.h"

namespace lion {
namespace {

// What a walk starts with: state [D, row] and sums [D].
template <class T>
inline void enter_state(const Head<T>& head, bool reverse, T* state, Int row, T* sums) {
  const State& from = head.p.entering[reverse];
  if (!from.sums) return;
  Int D = head.p.D, V = head.p.V;
  T scale = head.entry(reverse);
  for (Int d = 0; d < D; ++d) {
    for (Int v = 0; v < V; ++v) state[d * row + v] = head.sums_of(from)[d * V + v] * scale;
    sums[d] = head.keys_of(from)[d] * scale;
  }
}

// What it ends with.
template <class T>
inline void leave_state(const Head<T>& head, bool reverse, const T* state, Int row, const T* sums) {
  const State& to = head.p.leaving[reverse];
  Int D = head.p.D, V = head.p.V;
  for (Int d = 0; d < D; ++d) std::copy(state + d * row, state + d * row + V, head.sums_of(to) + d * V);
  std::copy(sums, sums + D, head.keys_of(to));
  head.put_scale(reverse);
}

// What is visited once needs no room for sums of several visits.
template <class T>
inline bool visited_once(const Head<T>& head) {
  return head.one_block() && head.orders() == 1;
}

template <class T>
class ForwardPass {
 public:
  explicit ForwardPass(const Head<T>& head) : head_(head), p_(head.p), division_(p_, head.b, head.h) {
    Int matrix = p_.D * leading<T>(p_.V);
    state_size_ = head.one_block() ? 0 : matrix + leading<T>(p_.D);
    T* memory = static_cast<T*>(memory_.reserve(static_cast<std::size_t>(4 * state_size_) * sizeof(T)));
    for (Side& side : sides_) {
      side = {memory, memory + matrix, memory + state_size_, memory + state_size_ + matrix};
      memory += 2 * state_size_;
    }
    out_ = {rows_of<T>(p_.out, p_, head.b, head.h, p_.wide_out), nullptr, p_.V, head.sequence.start};
    if (out_.out.half && !visited_once(head))
      out_.own = static_cast<T*>(sums_.reserve(static_cast<std::size_t>(head.sequence.length * p_.V + 1) * sizeof(T)));
  }

  // Whether there is a walk from that side.
  bool walks(bool from_right) const {
    if (head_.one_block()) return from_right ? p_.direction == REVERSE : p_.direction != REVERSE;
    return p_.direction & (from_right ? REVERSE : FORWARD);
  }

  void start(bool from_right) {
    if (head_.one_block()) return;
    Side& s = sides_[from_right];
    std::fill(s.state, s.state + 2 * state_size_, T(0));
    enter_state(head_, from_right, s.state, leading<T>(p_.V), s.sum);
  }

 protected:
  struct Side {
    T* state;                  // [D, V] what the walk carries: sum of decayed k v^T
    T* sum;                    // [D] and of decayed k
    T *lost_state, *lost_sum;  // by rounding
  };

  bool enters(const Visit& visit) const { return visit.enter || p_.entering[visit.from_right].sums; }
  bool leaves(const Visit& visit) const { return visit.leave || p_.leaving[visit.from_right].sums; }
  bool with_keys(const Visit& visit) const { return has_den(p_) || p_.leaving[visit.from_right].keys; }

  const Head<T>& head_;
  const Problem& p_;
  Division<T> division_;
  Int state_size_;
  Side sides_[2];
  Accumulator<T> out_;
  Buffer memory_, sums_;
};

// Which of the backward pass's states cross a chunk's borders: U, of the walk itself (on), and X, of the walk the other
// way (back). Over the ends of the piece U goes as a state, X as the gradient of one.
struct Crosses {
  bool on, back, enter_on, enter_back, leave_on, leave_back;

  Crosses(const Problem& p, const Visit& v, bool with_costs) {
    bool one = v.from_right, other = !v.from_right;
    on = p.direction & (one ? REVERSE : FORWARD), back = p.direction & (one ? FORWARD : REVERSE);
    enter_on = on && (v.enter || p.entering[one].sums);
    enter_back = back && (v.enter || p.dleaving[other].sums);
    leave_on = on && (v.leave || (with_costs && p.dleaving[one].sums));
    leave_back = back && (v.leave || p.entering[other].sums);
  }
};

// What the backward pass starts with on one side: u [V, D], which enters there, and the gradient of the other walk's
// state, which left there, as x [V, D] and x_rows [D, V].
template <class T>
inline void start_gradients(const Head<T>& head, bool from_right, T* u, T* u_sum, T* x, T* x_rows, T* x_sum) {
  Int D = head.p.D, V = head.p.V, row = leading<T>(V), d_row = leading<T>(D);
  if (head.p.entering[from_right].sums) {
    enter_state(head, from_right, x_rows, row, u_sum);
    transpose(x_rows, row, D, V, u, d_row);
    std::fill(x_rows, x_rows + D * row, T(0));
  }
  const State& from = head.p.dleaving[!from_right];
  if (!from.sums) return;
  for (Int d = 0; d < D; ++d) std::copy(head.sums_of(from) + d * V, head.sums_of(from) + (d + 1) * V, x_rows + d * row);
  std::copy(head.keys_of(from), head.keys_of(from) + D, x_sum);
  transpose(x_rows, row, D, V, x, d_row);
}

// And the gradient of what entered, at the end.
template <class T>
inline void end_gradients(const Head<T>& head, bool reverse, const T* x_rows, Int row, const T* x_sum) {
  const State& to = head.p.dentering[reverse];
  if (!to.sums) return;
  Int V = head.p.V;
  T scale = head.entry(reverse);
  for (Int d = 0; d < head.p.D; ++d) {
    for (Int v = 0; v < V; ++v) head.sums_of(to)[d * V + v] = x_rows[d * row + v] * scale;
    head.keys_of(to)[d] = x_sum[d] * scale;
  }
}

// Flow: what passes over a border of chunks in one direction; Flow::Sum is what sums of it within a chunk are kept in.
template <class T, class Flow>
class BackwardPass {
 public:
  // channels: of a flow
  BackwardPass(const Head<T>& head, Int channels) : head_(head), p_(head.p), division_(p_, head.b, head.h) {
    with_costs_ = p_.dlog_decay.data;  // and then the reverse walk's, if it has its own
    with_flow_ = with_costs_ && !head.one_block();
    D_ = p_.D, V_ = p_.V, d_row_ = leading<T>(D_), v_row_ = leading<T>(V_);
    // [V, D] and the sums [D] twice, and X as [D, V]
    state_size_ = 2 * (V_ * d_row_ + d_row_);
    Int x_rows = round_up(D_, W<T>) * v_row_;
    side_size_ = state_size_ + x_rows + V_ * d_row_ + x_rows + 2 * d_row_;
    Int anchors = with_flow_ ? (head.chunks / 2 + ANCHOR) / ANCHOR + 1 : 0;
    Int of_sides = head.one_block() ? 0 : 2 * (side_size_ + anchors * state_size_);
    T* memory = static_cast<T*>(memory_.reserve(static_cast<std::size_t>(of_sides + head.sequence.length) * sizeof(T)));
    dden_ = memory + of_sides;
    for (Side& side : sides_) {
      if (head.one_block()) break;  // nothing crosses a border
      side.u = memory, side.x = side.u + V_ * d_row_;
      side.u_sum = side.x + V_ * d_row_, side.x_sum = side.u_sum + d_row_;
      side.x_rows = memory + state_size_;
      side.lost_u = side.x_rows + x_rows, side.lost_x = side.lost_u + V_ * d_row_;
      side.lost_u_sum = side.lost_x + x_rows, side.lost_x_sum = side.lost_u_sum + d_row_;
      side.anchors = memory + side_size_;
      memory += side_size_ + anchors * state_size_;
      for (auto* sums : {&side.arrivals, &side.departures})
        sums->resize(static_cast<std::size_t>(with_flow_ ? head.chunks * channels : 0));
    }
    Int start = head.sequence.start, length = head.sequence.length;
    dq_ = {rows_of<T>(p_.dq, p_, head.b, head.h), nullptr, D_, start};
    dk_ = {rows_of<T>(p_.dk, p_, head.b, head.h), nullptr, D_, start};
    dv_ = {rows_of<T>(p_.dv, p_, head.b, head.h), nullptr, V_, start};
    if (p_.dtype == BFLOAT16 && !visited_once(head)) {
      T* sums = static_cast<T*>(sums_.reserve(static_cast<std::size_t>(length * (2 * D_ + V_) + 1) * sizeof(T)));
      dq_.own = sums, dk_.own = sums + length * D_, dv_.own = sums + 2 * length * D_;
    }
  }

  bool walks(bool from_right) const {  // both ways, since X goes against U
    return head_.one_block() ? from_right == (p_.direction == REVERSE) : true;
  }

  void start(bool from_right) {
    if (head_.one_block()) return;
    Side& s = sides_[from_right];
    std::fill(s.u, s.u + side_size_, T(0));
    start_gradients(head_, from_right, s.u, s.u_sum, s.x, s.x_rows, s.x_sum);
  }

 protected:
  // The flow over a border is known from both states there, and in between carried on, over this many chunks.
  static constexpr Int ANCHOR = 8;

  struct Side {
    T *u, *x;                                      // [V, D], transposed
    T *u_sum, *x_sum;                              // [D], for den
    T* x_rows;                                     // [D, V]
    T *lost_u, *lost_x, *lost_u_sum, *lost_x_sum;  // by rounding
    T* anchors;                                    // u, x and their sums at some borders of the first half
    // By chunk: what arrives there from behind, and leaves there for behind.
    std::vector<typename Flow::Sum> arrivals, departures;
    Flow on, back;  // in the second half
  };

  // The states that one side has left at a border.
  struct Anchor {
    const T *u, *x, *u_sum, *x_sum;
  };

  // Where the first half keeps its states for the other side's second half, and where that picks them up.
  Int anchor_of(bool from_right, Int border) const {
    Int from_start = from_right ? head_.chunks - border : border;
    Int half = from_right ? head_.chunks - head_.middle() : head_.middle();
    if (from_start > half || (from_start % ANCHOR && from_start != half)) return -1;
    return (from_start + ANCHOR - 1) / ANCHOR;
  }

  void keep_anchor(bool from_right, Int border) {
    Int anchor = anchor_of(from_right, border);
    const Side& side = sides_[from_right];
    if (anchor >= 0) std::copy(side.u, side.u + state_size_, side.anchors + anchor * state_size_);
  }

  // Before a visit: the first half keeps what the second half of the other side, in `known`, has use for.
  template <class Known>
  void at_border(const Visit& visit, Known known) {
    Int border = visit.from_right ? visit.chunk + 1 : visit.chunk;
    if (visit.inside) return keep_anchor(visit.from_right, border);
    Int anchor = anchor_of(!visit.from_right, border);
    if (anchor < 0) return;
    const T* u = sides_[!visit.from_right].anchors + anchor * state_size_;
    const T* sums = u + 2 * V_ * d_row_;
    known(Anchor{u, u + V_ * d_row_, sums, sums + d_row_});
  }

  // After it: the border where a half ends belongs to no chunk of it, and nor does the end of the piece.
  void keep_last_anchor(const Visit& visit) {
    Int border = visit.from_right ? visit.chunk : visit.chunk + 1;
    if (with_flow_ && visit.inside && border == head_.middle()) keep_anchor(visit.from_right, border);
  }
  bool at_end(const Visit& visit) const { return with_flow_ && !visit.inside && !visit.leave && has_states(p_); }

  const Head<T>& head_;
  const Problem& p_;
  Division<T> division_;
  bool with_costs_, with_flow_;  // with_flow_: and there are borders for it to pass
  Int D_, V_, d_row_, v_row_, state_size_, side_size_;
  Side sides_[2];
  T* dden_;  // [tokens]
  Accumulator<T> dq_, dk_, dv_;
  Buffer memory_, sums_;
};

}  // namespace
}  // namespace lion
