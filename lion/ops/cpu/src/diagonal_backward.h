// The backward pass of one head whose channels decay apart: as Backward's, with rows decayed by channel, and with the
// flow of every channel.
#pragma once

#include "channels.h"

namespace lion {
namespace {

template <class T>
struct DiagonalBackwardScratch {
  Int* tokens;
  BothWays<T> channels;
  ChannelScores<T> block;
  T *q, *k, *v, *g;  // g: dnum
  T *dq, *dk, *dv, *part, *weights, *rows;
  T *dcost, *dcost_back;  // as Backward's
  T *transposed, *scores, *dscores;
  T *dden, *running, *arrived, *departed, *out_row;
  Int d_row, v_row, c_row;
  Prefetch prefetch;

  void take(Arena& arena, const Problem& p, Int chunk) {
    Int padded = round_up(chunk, W<T>);
    tokens = arena.take<Int>(chunk);
    channels.take(arena, p, chunk);
    block.take(arena, p, chunk);
    d_row = block.d_row, c_row = block.c_row, v_row = leading<T>(p.V);
    for (T** x : {&q, &k, &dq, &dk, &dcost, &part, &weights, &rows}) *x = arena.take<T>(padded * d_row);
    dcost_back = p.log_decay_reverse.data ? arena.take<T>(padded * d_row) : dcost;
    for (T** x : {&v, &g, &dv}) *x = arena.take<T>(padded * v_row);
    for (T** x : {&scores, &dscores}) *x = arena.take<T>(padded * c_row);
    transposed = arena.take<T>(round_up(p.V, W<T>) * c_row);
    dden = arena.take<T>(padded), out_row = arena.take<T>(v_row);
    for (T** x : {&running, &arrived, &departed}) *x = arena.take<T>(d_row);
  }
};

// What passes over a border of chunks, in one direction, channel by channel.
template <class T>
struct ChannelFlow {
  using Sum = T;
  std::vector<double> value;  // as far as rounding lets us know
  std::vector<Int> carried;   // over how many chunks, since it was known exactly

  void clear(Int D) { value.assign(static_cast<std::size_t>(D), 0), carried.assign(static_cast<std::size_t>(D), 0); }
};

template <class T>
class DiagonalBackward : public BackwardPass<T, ChannelFlow<T>> {
  using Base = BackwardPass<T, ChannelFlow<T>>;
  using Base::D_, Base::V_, Base::d_row_, Base::v_row_, Base::dq_, Base::dk_, Base::dv_;
  using Base::head_, Base::p_, Base::division_, Base::with_costs_, Base::with_flow_, Base::sides_, Base::dden_;
  using typename Base::Anchor, typename Base::Side;

 public:
  using Scratch = DiagonalBackwardScratch<T>;
  static constexpr bool all_orders_at_once = false;

  explicit DiagonalBackward(const Head<T>& head) : Base(head, head.p.D) {}

  void start(bool from_right) {
    Base::start(from_right);
    Side& s = sides_[from_right];
    s.on.clear(D_), s.back.clear(D_);
  }

  void prefetch(const Visit& visit, Int later, Scratch& x) {
    bool wide = p_.wide_out;
    prefetch_rows(
        head_, visit, later,
        {{&p_.q, D_}, {&p_.k, D_}, {&p_.v, V_}, {&head_.log_decay(visit.from_right), D_, true}, {&p_.dout, V_, wide}},
        x.prefetch);
  }

  void visit(const Visit& visit, Scratch& x) {
    Side& side = sides_[visit.from_right];
    Int n = head_.size_of(visit.chunk);
    bool on = p_.direction & (visit.from_right ? REVERSE : FORWARD);
    bool back = p_.direction & (visit.from_right ? FORWARD : REVERSE);
    if (with_flow_) at_border(visit, on, back);
    head_.tokens_of(visit.order, visit.chunk, visit.from_right, x.tokens);
    x.channels.read(head_, visit.order, visit.from_right, x.tokens, n);
    gather<T>(rows_of<T>(p_.k, p_, head_.b, head_.h), x.tokens, n, D_, nullptr, x.k, x.d_row);
    gather<T>(rows_of<T>(p_.v, p_, head_.b, head_.h), x.tokens, n, V_, nullptr, x.v, x.v_row);
    if (has_output(p_)) {
      gather<T>(rows_of<T>(p_.q, p_, head_.b, head_.h), x.tokens, n, D_, nullptr, x.q, x.d_row);
      read_gradients(head_, division_, visit.first, x.tokens, n, x.g, x.v_row, x.dden, dden_, x.out_row);
    }
    for (T* to : {x.dq, x.dk, x.dcost, x.dcost_back}) std::fill(to, to + n * x.d_row, T(0));
    if (visit.inside && has_output(p_)) inside(visit.order, n, on, back, x);
    across(visit, side, n, Crosses(p_, visit, with_costs_), x);
    auto costs = [&](bool reverse) {
      const Rows& rows = head_.dlog_decay(reverse);
      return Accumulator<T>{rows_of<T>(rows, p_, head_.b, head_.decay_head(visit.order), true), nullptr, D_,
                            head_.sequence.start};
    };
    Accumulator<T> dcost = costs(visit.from_right), dcost_back = costs(!visit.from_right);
    for (Int i = 0; i < n; ++i) {
      if (has_output(p_)) dq_.add(x.tokens[i], x.dq + i * x.d_row, 1, visit.first, visit.last);
      dk_.add(x.tokens[i], x.dk + i * x.d_row, 1, visit.first, visit.last);
      dv_.add(x.tokens[i], x.dv + i * x.v_row, 1, visit.first, visit.last);
      if (with_costs_) dcost.add(x.tokens[i], x.dcost + i * x.d_row, 1, visit.first_cost, visit.last);
      if (with_costs_ && head_.two_sided())
        dcost_back.add(x.tokens[i], x.dcost_back + i * x.d_row, 1, visit.first_cost, visit.last);
    }
    if (this->at_end(visit)) at_border(visit.beyond(), on, back);
  }

  void visit_all(Scratch&) {}

 private:
  void at_border(const Visit& visit, bool on, bool back) {
    Base::at_border(visit, [&](const Anchor& other) {
      Side& side = sides_[visit.from_right];
      if (on) known(visit, visit.from_right, side.on, side.u, other.x, side.u_sum, other.x_sum);
      if (back) known(visit, !visit.from_right, side.back, side.x, other.u, side.x_sum, other.u_sum);
    });
  }

  // The flow is known again, from the states on both sides of the border.
  void known(const Visit& visit, bool reverse, ChannelFlow<T>& flow, const T* a, const T* b, const T* a_sum,
             const T* b_sum) {
    std::vector<double> exact(static_cast<std::size_t>(D_));
    for (Int d = 0; d < D_; ++d) exact[index(d)] = static_cast<double>(a_sum[d]) * b_sum[d];
    for (Int v = 0; v < V_; ++v)
      for (Int d = 0; d < D_; ++d) exact[index(d)] += static_cast<double>(a[v * d_row_ + d]) * b[v * d_row_ + d];
    std::vector<double> off(exact);
    for (Int d = 0; d < D_; ++d) off[index(d)] -= flow.value[index(d)];
    settle(visit, reverse, flow, off);
    flow.clear(D_);
    flow.value = exact;
  }

  // What a flow is off by has crept in bit by bit: every chunk since it was known gets its share back.
  void settle(const Visit& visit, bool reverse, const ChannelFlow<T>& flow, const std::vector<double>& off) {
    Int most = 0;
    for (Int carried : flow.carried) most = std::max(most, carried);
    std::vector<T> share(static_cast<std::size_t>(D_));
    for (Int ago = 1; ago <= most; ++ago) {
      for (Int d = 0; d < D_; ++d) {
        Int carried = flow.carried[index(d)];
        share[index(d)] = ago <= carried ? static_cast<T>(off[index(d)] * static_cast<double>(2 * (carried - ago) + 1) /
                                                          static_cast<double>(2 * carried))
                                         : T(0);
      }
      Int c = visit.from_right ? visit.chunk + ago : visit.chunk - ago;
      for (Int place = head_.first_of(c); place < head_.first_of(c) + head_.size_of(c); ++place) {
        Int t = head_.token(visit.order, place);
        T* to = at<T>(head_.dlog_decay(reverse), head_.b, t, head_.decay_head(visit.order));
        for (Int d = 0; d < D_; ++d) to[d] += share[index(d)];
      }
    }
  }

  static std::size_t index(Int d) { return static_cast<std::size_t>(d); }

  void inside(Int order, Int n, bool on, bool back, Scratch& x) {
    x.block.scores(x.channels, n, x.q, x.k, on, back, x.scores);
    transpose(x.v, x.v_row, n, V_, x.transposed, x.c_row);
    multiply<T>(n, n,
                {.c = x.dscores,
                 .c_row = x.c_row,
                 .plain = {V_, x.g, x.v_row, 1, x.transposed, x.c_row},
                 .prefetch = &x.prefetch});
    for (Int i = 0; i < n; ++i) {
      T* row = x.dscores + i * x.c_row;
      for (Int j = 0; j < n; j += W<T>) store(row + j, load(row + j) + x.dden[i]);
      const T *q = x.q + i * x.d_row, *k = x.k + i * x.d_row;
      x.scores[i * x.c_row + i] = own_score(head_, x.tokens[i], q, k);
      own_gradients(head_, order, x.tokens[i], row[i], q, k, x.dq + i * x.d_row, x.dk + i * x.d_row);
    }
    x.block.gradients(x.channels, n, x.q, x.k, on, back, x.dscores, x.dq, x.dk, x.dcost, x.dcost_back);
  }

  // What crosses the chunk's borders.
  void across(const Visit& visit, Side& side, Int n, Crosses over, Scratch& x) {
    for (T* total : {x.arrived, x.departed}) std::fill(total, total + x.d_row, T(0));
    Int entering = over.enter_back ? D_ : 0;
    if (over.enter_on && has_output(p_)) enter(n, x.g, side.u, side.u_sum, x.dden, x.q, x.dq, false, x.arrived, x);
    if (entering) enter(n, x.v, side.x, side.x_sum, nullptr, x.k, x.dk, true, x.departed, x);
    multiply<T>(n, V_,
                {.c = x.dv,
                 .c_row = x.v_row,
                 .scaled = {entering, x.rows, x.d_row, 1, side.x_rows, v_row_},  // the keys that `enter` left there
                 .plain = {visit.inside && has_output(p_) ? n : 0, x.scores, 1, x.c_row, x.g, x.v_row},
                 .prefetch = &x.prefetch});
    if (with_flow_) flow(visit, side, n, over, x);
    if (over.leave_on) {
      x.channels.on().along(n, true, !p_.decay_between, x.k, x.running);
      x.channels.on().cross_columns(side.u, side.lost_u, d_row_, V_);
      multiply<T>(V_, D_,
                  {.c = side.u,
                   .c_row = d_row_,
                   .plain = {n, x.v, 1, x.v_row, x.k, x.d_row},
                   .fresh = false,
                   .prefetch = &x.prefetch,
                   .lost = side.lost_u});
      x.channels.on().cross_columns(side.u_sum, side.lost_u_sum, 0, 1);
      add_columns<T>(x.k, x.d_row, n, D_, nullptr, {0, 1}, side.u_sum, side.lost_u_sum);
    }
    if (over.leave_back) {
      Int m = has_output(p_) ? n : 0;
      x.channels.back().along(m, true, false, x.q, x.running);
      x.channels.back().cross_rows(side.x_rows, side.lost_x, v_row_, V_);
      multiply<T>(D_, V_,
                  {.c = side.x_rows,
                   .c_row = v_row_,
                   .plain = {m, x.q, 1, x.d_row, x.g, x.v_row},
                   .fresh = false,
                   .prefetch = &x.prefetch,
                   .lost = side.lost_x});
      transpose(side.x_rows, v_row_, D_, V_, side.x, d_row_);
      x.channels.back().cross_columns(side.x_sum, side.lost_x_sum, 0, 1);
      add_columns<T>(x.q, x.d_row, m, D_, x.dden, {0, 1}, side.x_sum, side.lost_x_sum);
      if (!visit.leave) end_gradients(head_, !visit.from_right, side.x_rows, v_row_, side.x_sum);
    }
    this->keep_last_anchor(visit);
  }

  // What a state does to rows it is met by: grad += decayed (values state + weights sums). Leaves the decayed rows in
  // x.rows. Every token's cost is paid by all that are met later, and on the way `back`, as keys do, by itself.
  void enter(Int n, const T* values, const T* state, const T* sums, const T* weights, const T* rows, T* grad, bool back,
             T* total, Scratch& x) const {
    T* dcost = back ? x.dcost_back : x.dcost;
    bool with_own = back && !p_.decay_between;
    multiply<T>(
        n, D_,
        {.c = x.part, .c_row = x.d_row, .plain = {V_, values, x.v_row, 1, state, d_row_}, .prefetch = &x.prefetch});
    std::copy(rows, rows + n * x.d_row, x.rows);
    (back ? x.channels.back() : x.channels.on()).along(n, false, with_own, x.rows, x.running, x.weights);
    for (Int i = n - 1; i >= 0; --i) {
      Vec<T> weight = splat(weights ? weights[i] : T(1));
      for (Int d = 0; d < D_; d += W<T>) {
        Int place = i * x.d_row + d;
        Vec<T> y = load(x.part + place) + weight * load(sums + d);
        Vec<T> before = load(total + d), after = before + y * load(x.rows + place);
        store(grad + place, load(grad + place) + y * load(x.weights + place));
        store(dcost + place, load(dcost + place) + (with_own ? after : before));
        store(total + d, after);
      }
    }
  }

  // Walks from before the chunk to behind it pay every cost in it. The first visit knows what arrives and what
  // departs on its side; the second what comes over the border.
  void flow(const Visit& visit, Side& side, Int n, Crosses over, Scratch& x) {
    if (visit.inside) {
      std::copy(x.arrived, x.arrived + D_, side.arrivals.data() + visit.chunk * D_);
      std::copy(x.departed, x.departed + D_, side.departures.data() + visit.chunk * D_);
      return;
    }
    const Side& other = sides_[!visit.from_right];
    auto add = [&](T* dcost) {
      for (Int i = 0; i < n; ++i)
        for (Int d = i * x.d_row, r = 0; r < D_; d += W<T>, r += W<T>)
          store(dcost + d, load(dcost + d) + load(x.running + r));
      std::fill(x.running, x.running + x.d_row, T(0));
    };
    std::fill(x.running, x.running + x.d_row, T(0));
    bool right = visit.from_right;
    Int c = visit.chunk * D_;
    if (over.on) pass(visit, right, x.channels.on(), side.on, x.arrived, other.departures.data() + c, over.leave_on, x);
    if (head_.two_sided()) add(x.dcost);
    if (over.back)
      pass(visit, !right, x.channels.back(), side.back, x.departed, other.arrivals.data() + c, over.leave_back, x);
    add(x.dcost_back);
  }

  // What of a flow goes through is added to x.running; what starts here joins it.
  void pass(const Visit& visit, bool reverse, const Channels<T>& channels, ChannelFlow<T>& flow, const T* ends,
            const T* starts, bool leaves, Scratch& x) {
    std::vector<double> off(static_cast<std::size_t>(D_));
    bool any = false;
    for (Int d = 0; d < D_; ++d) {
      double through = flow.value[index(d)] - ends[d];
      bool nothing = !leaves || channels.cross(d) < std::numeric_limits<T>::epsilon();
      if (nothing && flow.carried[index(d)]) off[index(d)] = -through, any = true;  // which is known exactly
    }
    if (any) settle(visit, reverse, flow, off);
    for (Int d = 0; d < D_; ++d) {
      double through = flow.value[index(d)] - ends[d];
      bool nothing = !leaves || channels.cross(d) < std::numeric_limits<T>::epsilon();
      if (!nothing) x.running[d] += static_cast<T>(through);
      flow.value[index(d)] = (nothing ? 0 : through) + starts[d];
      flow.carried[index(d)] = nothing ? 0 : flow.carried[index(d)] + 1;
    }
  }
};

}  // namespace
}  // namespace lion
