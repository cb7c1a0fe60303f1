// No decay, both directions: every token sees every token, so all of them see one state, sum of k v^T.
#pragma once

#include "backward.h"
#include "forward.h"

namespace lion {
namespace {

// In three stages: the states of segments, their sums, and what every token reads of those.
template <class T>
class OneState {
 public:
  OneState(const Problem& p, bool backward) : p_(p), backward_(backward), sequences_(p) {
    d_row_ = leading<T>(p.D), v_row_ = leading<T>(p.V);
    d_size_ = round_up(p.D, W<T>) * v_row_ + d_row_, v_size_ = round_up(p.V, W<T>) * d_row_;
    segments_ = std::max<Int>(1, (sequences_.longest() + SEGMENT - 1) / SEGMENT);
    groups_ = (p.H + GROUP - 1) / GROUP;
    heads_ = sequences_.size() * p.H;
    Int sums = heads_ * segments_ * states() * d_size_, turned = backward ? heads_ * 2 * v_size_ : 0;
    Int dden = backward ? p.B * p.T * p.H : 0;
    sums_ = static_cast<T*>(memory_.reserve(static_cast<std::size_t>(sums + turned + dden) * sizeof(T)));
    turned_ = sums_ + sums, dden_ = turned_ + turned;
    if (p.log_gain.data) largest_.resize(static_cast<std::size_t>(heads_));
  }

  void run(Parallel parallel) {
    auto all = [&](Int count, Task task) { parallel(count, p_.threads, task, this); };
    auto in_blocks = [&](Stage stage) {
      stage_ = std::move(stage);
      all(sequences_.size() * segments_ * groups_, [](void* x, Int i) { self(x).blocks(i, self(x).stage_); });
    };
    if (p_.log_gain.data) all(heads_, [](void* x, Int i) { self(x).find_largest(i); });
    if (backward_)
      in_blocks({&OneState::collect, {&p_.k, &p_.v, &p_.q, &p_.dout, &p_.out}});
    else
      in_blocks({&OneState::collect, {&p_.k, &p_.v}});
    all(heads_, [](void* x, Int i) { self(x).combine(i); });
    if (backward_)
      in_blocks({&OneState::give, {&p_.k, &p_.v, &p_.dout, &p_.dq, &p_.dv, &p_.dk}});
    else
      in_blocks({&OneState::serve, {&p_.q, &p_.out}});
  }

 private:
  static constexpr Int BLOCK = 64;      // tokens that are read at a time
  static constexpr Int SEGMENT = 4096;  // tokens of one task: the sums are the same for any number of threads
  static constexpr Int GROUP = 4;       // heads of one task: their rows lie side by side in memory

  static OneState& self(void* x) { return *static_cast<OneState*>(x); }

  struct Scratch {
    T *q, *k, *v, *g, *out, *part;  // rows
    T *scale, *factor, *dden;       // [BLOCK]
    Prefetch prefetch;

    void take(Arena& arena, Int d_row, Int v_row) {
      for (T** x : {&q, &k}) *x = arena.take<T>(BLOCK * d_row);
      for (T** x : {&v, &g}) *x = arena.take<T>(BLOCK * v_row);
      out = arena.take<T>(BLOCK * std::max(d_row, v_row));
      part = arena.take<T>(v_row);
      for (T** x : {&scale, &factor, &dden}) *x = arena.take<T>(BLOCK);
    }
  };

  // Some tokens of one head.
  struct Block {
    Int b, h, head, segment;
    bool in_order;
    Int n;
    Int tokens[BLOCK];
    const T* keys;  // factors of the keys, or null
    Scratch& x;
  };

  struct Stage {
    void (OneState::*work)(Block&);
    std::vector<const Rows*> touches;
  };

  Int states() const { return backward_ ? 2 : 1; }
  T* state(Int head, Int segment, bool of_gradient = false) const {
    return sums_ + ((head * segments_ + segment) * states() + of_gradient) * d_size_;
  }
  T* sums_of(T* state) const { return state + round_up(p_.D, W<T>) * v_row_; }
  T* turned(Int head, bool of_gradient) const { return turned_ + (head * 2 + of_gradient) * v_size_; }
  T* dden(const Block& y) const { return dden_ + (y.b * p_.H + y.h) * p_.T; }
  T largest(Int head) const { return p_.log_gain.data ? largest_[static_cast<std::size_t>(head)] : T(0); }

  static Int token(const Sequences::Sequence& s, Int place) {
    return s.lists.empty() ? s.start + place : s.lists[0][static_cast<std::size_t>(place)];
  }

  void find_largest(Int head) {
    const auto& s = sequences_[head / p_.H];
    T most = -std::numeric_limits<T>::infinity();
    for (Int i = 0; i < s.tokens; ++i) most = std::fmax(most, gate<T>(p_, s.row, token(s, i), head % p_.H));
    largest_[static_cast<std::size_t>(head)] = most;
  }

  // The blocks of a segment, each for all heads of a group.
  void blocks(Int piece, const Stage& stage) {
    thread_local Buffer memory;
    Scratch x;
    Arena count;
    x.take(count, d_row_, v_row_);
    Arena arena(memory.reserve(count.used()));
    x.take(arena, d_row_, v_row_);
    Int group = piece % groups_, segment = piece / groups_ % segments_, sequence = piece / groups_ / segments_;
    const auto& s = sequences_[sequence];
    Int end = std::min(s.tokens, (segment + 1) * SEGMENT), last_head = std::min(p_.H, (group + 1) * GROUP);
    for (Int first = segment * SEGMENT; first < end; first += BLOCK)
      for (Int h = group * GROUP; h < last_head; ++h) {
        Block y = {s.row, h, sequence * p_.H + h, segment, s.lists.empty(), std::min(BLOCK, end - first), {}, {}, x};
        for (Int i = 0; i < y.n; ++i) y.tokens[i] = token(s, first + i);
        read_gates(y);
        bool more = h + 1 < last_head;
        prefetch_next(stage, s, more ? first : first + BLOCK, end, more ? h + 1 : group * GROUP, x.prefetch);
        (this->*stage.work)(y);
      }
  }

  // Fetches what the work on the next block will touch.
  void prefetch_next(const Stage& stage, const Sequences::Sequence& s, Int first, Int end, Int h,
                     Prefetch& prefetch) const {
    prefetch.clear();
    for (const Rows* rows : stage.touches) {
      HeadRows next = rows_of<T>(*rows, p_, s.row, h);
      for (Int i = first; i < std::min(first + BLOCK, end); ++i)
        prefetch.add(next.row<char>(token(s, i)), std::min(p_.D, p_.V) * Int(sizeof(T)));
    }
  }

  void read_gates(Block& y) const {
    if (!p_.log_gain.data) return;
    T top = largest(y.head);
    for (Int i = 0; i < y.n; ++i)
      y.x.scale[i] = std::isinf(top) ? T(0) : std::exp(*at<T>(p_.log_gain, y.b, y.tokens[i], y.h) - top);
    y.keys = y.x.scale;
  }

  // Rows of the block where they are or, if that is not how a product can read them, a copy.
  Matrix<T> read(const Rows& rows, const Block& y, Int columns, T* room, Int room_row, bool wide = false) const {
    HeadRows from = rows_of<T>(rows, p_, y.b, y.h, wide);
    if (lies_evenly<T>(from, columns, y.in_order))
      return {from.row<T>(y.tokens[0]), step_between<T>(from, y.tokens, y.n)};
    gather<T>(from, y.tokens, y.n, columns, nullptr, room, room_row);
    return {room, room_row};
  }

  // The rows of a result, as a sum of products. They are returned, to be read.
  Matrix<T> write(const Rows& rows, const Block& y, Int columns, Sum<T> sum, bool wide = false) const {
    HeadRows to = rows_of<T>(rows, p_, y.b, y.h, wide);
    bool there = lies_evenly<T>(to, columns, y.in_order);
    sum.c = there ? to.row<T>(y.tokens[0]) : y.x.out;
    sum.c_row = there ? step_between<T>(to, y.tokens, y.n) : std::max(d_row_, v_row_);
    sum.prefetch = &y.x.prefetch;
    multiply<T>(y.n, columns, sum);
    if (!there) scatter(sum.c, sum.c_row, y.tokens, y.n, columns, to);
    return {sum.c, sum.c_row};
  }

  void collect(Block& y) {
    Scratch& x = y.x;
    bool first = y.tokens[0] == token(sequences_[y.head / p_.H], y.segment * SEGMENT);
    // Copies of all: a state's product reads every row many times.
    gather(rows_of<T>(p_.k, p_, y.b, y.h), y.tokens, y.n, p_.D, y.keys, x.k, d_row_);
    gather<T>(rows_of<T>(p_.v, p_, y.b, y.h), y.tokens, y.n, p_.V, nullptr, x.v, v_row_);
    add(y, x.k, x.v, nullptr, first, state(y.head, y.segment));
    if (!backward_) return;
    Division<T> division(p_, y.b, y.h);
    gather<T>(rows_of<T>(p_.q, p_, y.b, y.h), y.tokens, y.n, p_.D, nullptr, x.q, d_row_);
    gather<T>(rows_of<T>(p_.dout, p_, y.b, y.h, p_.wide_out), y.tokens, y.n, p_.V, nullptr, x.g, v_row_);
    for (Int i = 0; i < y.n; ++i) {
      x.dden[i] = division.den_grad(y.tokens[i], largest(y.head), x.g + i * v_row_, x.part);
      dden(y)[y.tokens[i]] = x.dden[i];
    }
    num_factors(y);
    scale_rows(x.g, v_row_, y.n, p_.V, x.factor);
    add(y, x.q, x.g, x.dden, first, state(y.head, y.segment, true));
  }

  void num_factors(const Block& y) const {
    Division<T> division(p_, y.b, y.h);
    for (Int i = 0; i < y.n; ++i) y.x.factor[i] = division.num_factor(y.tokens[i], largest(y.head));
  }

  // to = sum of row^T column, and of the rows, each times its weight
  void add(const Block& y, const T* rows, const T* columns, const T* weights, bool first, T* to) {
    if (first) std::fill(to, to + d_size_, T(0));
    multiply<T>(p_.D, p_.V,
                {.c = to,
                 .c_row = v_row_,
                 .plain = {y.n, rows, 1, d_row_, columns, v_row_},
                 .fresh = false,
                 .prefetch = &y.x.prefetch});
    if (has_den(p_)) add_columns<T>(rows, d_row_, y.n, p_.D, weights, {0, 1}, sums_of(to), nullptr);
  }

  // The segments' states into the first's, once for every order: all orders see the same.
  void combine(Int head) {
    Int used = (sequences_[head / p_.H].tokens + SEGMENT - 1) / SEGMENT;
    T orders = static_cast<T>(std::max<Int>(p_.orders, 1));
    for (Int which = 0; which < states(); ++which) {
      T* total = state(head, 0, which);
      for (Int i = 0; i < d_size_; i += W<T>) {
        Vec<T> sum = load(total + i);
        for (Int s = 1; s < used; ++s) sum += load(state(head, s, which) + i);
        store(total + i, sum * orders);
      }
      if (backward_) transpose(total, v_row_, p_.D, p_.V, turned(head, which), d_row_);
    }
  }

  void serve(Block& y) {
    T* total = state(y.head, 0);
    Division<T> division(p_, y.b, y.h);
    Matrix<T> q = read(p_.q, y, p_.D, y.x.q, d_row_);
    for (Int i = 0; i < y.n; ++i) {
      T den = division.with_den() ? dot(q.data + i * q.row, sums_of(total), p_.D) : T(0);
      y.x.factor[i] = division.complete(y.tokens[i], den, largest(y.head));
    }
    write(p_.out, y, p_.V, {.plain = {p_.D, q.data, q.row, 1, total, v_row_}, .last_row = y.x.factor}, p_.wide_out);
  }

  void give(Block& y) {
    T *total = state(y.head, 0), *dtotal = state(y.head, 0, true);
    const T one = 1;
    Matrix<T> k = read(p_.k, y, p_.D, y.x.k, d_row_);
    Matrix<T> v = read(p_.v, y, p_.V, y.x.v, v_row_);
    Matrix<T> g = read(p_.dout, y, p_.V, y.x.g, v_row_, p_.wide_out);
    num_factors(y);
    for (Int i = 0; i < y.n; ++i) y.x.dden[i] = dden(y)[y.tokens[i]];
    Int sums = has_den(p_) ? 1 : 0;
    write(p_.dq, y, p_.D,
          {.scaled = {p_.V, g.data, g.row, 1, turned(y.head, false), d_row_},
           .row = y.x.factor,
           .plain = {sums, y.x.dden, 1, 1, sums_of(total), 0}});
    write(p_.dv, y, p_.V, {.plain = {p_.D, k.data, k.row, 1, dtotal, v_row_}, .last_row = y.keys});
    Matrix<T> dk = write(p_.dk, y, p_.D,
                         {.scaled = {p_.V, v.data, v.row, 1, turned(y.head, true), d_row_},
                          .plain = {sums, &one, 0, 0, sums_of(dtotal), 0},
                          .last_row = y.keys});
    if (p_.dlog_gain.data)
      for (Int i = 0; i < y.n; ++i)
        *at<T>(p_.dlog_gain, y.b, y.tokens[i], y.h) = dot(k.data + i * k.row, dk.data + i * dk.row, p_.D);
  }

  const Problem& p_;
  bool backward_;
  Sequences sequences_;
  Int d_row_, v_row_, d_size_, v_size_, segments_, groups_, heads_;
  T *sums_, *turned_;  // by head and segment; transposed totals by head
  T* dden_;            // [B, H, T]
  Stage stage_;
  std::vector<T> largest_;
  Buffer memory_;
};

}  // namespace
}  // namespace lion
