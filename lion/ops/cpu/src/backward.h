// The backward pass of one head: visits to its chunks from both sides (docs/maths.md derives it).
//
// A walk carries two states. One is the forward pass's own, U, sum of decayed k v^T of the tokens behind: it
// gives dq. The other belongs to the walk the other way, which went from here to the tokens behind: X, sum of
// decayed q dnum^T, gives dk and dv. Each is kept as its transpose too where that is what a product needs.
#pragma once

#include "passes.h"

namespace lion {
namespace {

template <class T>
struct BackwardScratch {
  Tokens<T> tokens;
  T *q, *k, *v, *g;  // g: dnum
  T *dq, *dk, *dv, *part;
  T *transposed, *scores, *dscores, *mask, *products;
  T *dden, *arrive, *leave, *arrive_back, *leave_back, *dgain;
  T *dcost, *dcost_back;  // of leaving on and back; the same if both cost the same
  Int d_row, v_row, c_row;
  Prefetch prefetch;

  void take(Arena& arena, const Problem& p, Int chunk) {
    Int rows = round_up(chunk, W<T>);
    d_row = leading<T>(p.D), v_row = leading<T>(p.V), c_row = leading<T>(chunk);
    tokens.take(arena, chunk);
    for (T** x : {&q, &k, &dq, &dk}) *x = arena.take<T>(rows * d_row);
    part = arena.take<T>(rows * std::max(d_row, v_row));
    for (T** x : {&v, &g, &dv}) *x = arena.take<T>(rows * v_row);
    for (T** x : {&scores, &dscores, &mask, &products}) *x = arena.take<T>(rows * c_row);
    transposed = arena.take<T>(round_up(std::max(p.D, p.V), W<T>) * c_row);
    for (T** x : {&dden, &arrive, &leave, &arrive_back, &leave_back, &dcost, &dgain}) *x = arena.take<T>(rows);
    dcost_back = p.log_decay_reverse.data ? arena.take<T>(rows) : dcost;
  }
};

// What passes over a border of chunks, in one direction.
struct Flow {
  using Sum = double;
  double value = 0;            // as far as rounding lets us know
  Int first = 0, carried = 0;  // the chunk behind the border where it was known exactly, and how many since
};

template <class T>
class Backward : public BackwardPass<T, Flow> {
  using Base = BackwardPass<T, Flow>;
  using Base::D_, Base::V_, Base::d_row_, Base::v_row_, Base::dq_, Base::dk_, Base::dv_;
  using Base::head_, Base::p_, Base::division_, Base::with_costs_, Base::with_flow_, Base::sides_, Base::dden_;
  using typename Base::Anchor, typename Base::Side;

 public:
  using Scratch = BackwardScratch<T>;
  static constexpr bool all_orders_at_once = true;  // in a short sequence

  explicit Backward(const Head<T>& head) : Base(head, 1) {
    bool whole_vectors = D_ % W<T> == 0 && V_ % W<T> == 0;
    in_place_ = has_output(p_) && head.in_order() && p_.dtype != BFLOAT16 && !p_.log_gain.data && whole_vectors;
  }

  void prefetch(const Visit& visit, Int later, Scratch& x) {
    bool wide = p_.wide_out;
    Touched out = {&p_.out, visit.first ? V_ : 0, wide};
    prefetch_rows(
        head_, visit, later,
        {{&p_.q, D_}, {&p_.k, D_}, {&p_.v, V_}, {&p_.dout, V_, wide}, {&p_.dq, D_}, {&p_.dk, D_}, {&p_.dv, V_}, out},
        x.prefetch);
  }

  void visit(const Visit& visit, Scratch& x) {
    Side& side = sides_[visit.from_right];
    Int n = head_.size_of(visit.chunk);
    bool on = p_.direction & (visit.from_right ? REVERSE : FORWARD);
    bool back = p_.direction & (visit.from_right ? FORWARD : REVERSE);
    if (with_flow_) at_border(visit);
    x.tokens.read(head_, visit);
    read(x.tokens.tokens, n, x.tokens.queries, x.tokens.keys, visit.first, x);
    for (T* dcost : {x.dcost, x.dcost_back}) std::fill(dcost, dcost + n, T(0));
    std::fill(x.dgain, x.dgain + n, T(0));
    Targets to = targets(visit.first, x.tokens.tokens, n, x);

    if (visit.inside && has_output(p_)) {
      if (!head_.counts_in_full())
        block_mask(on ? x.tokens.ahead_factors : nullptr, back ? x.tokens.back_factors : nullptr, n, x.mask, x.c_row);
      inside(visit.order, n, x.tokens.tokens, true, to, x);
      if (with_costs_) {
        if (on) add_cost_grad_ahead(n, x.products, x.c_row, x.mask, x.dcost);
        if (back) add_cost_grad_back(n, x.products, x.c_row, x.mask, x.dcost_back);
      }
    }
    across(visit, side, n, Crosses(p_, visit, with_costs_), to, x);
    if (with_costs_) {
      put_costs(visit.order, visit.from_right, n, x.tokens.tokens, visit.first_cost, x);
      if (this->at_end(visit)) at_border(visit.beyond());
    }
    finish(visit, n, x.tokens.tokens, x.tokens.queries, x.tokens.keys, to, x);
  }

  void visit_all(Scratch& x) {
    AllOrders<T> orders(head_);
    Int n = head_.n;
    read(orders.tokens(), n, nullptr, nullptr, true, x);
    std::fill(x.dgain, x.dgain + n, T(0));
    orders.mask(x.mask, x.c_row, x.tokens.row);
    Targets to = {{x.dq, x.d_row}, {x.dk, x.d_row}, {x.dv, x.v_row}, false, true, true, true};
    x.prefetch.clear();
    inside(0, n, orders.tokens(), false, to, x);
    multiply<T>(n, V_, {.c = to.dv.data, .c_row = to.dv.row, .plain = {n, x.scores, 1, x.c_row, x.g, x.v_row}});
    to.fresh_dv = false;
    if (p_.dlog_gain.data)
      for (Int i = 0; i < n; ++i) x.dgain[i] = dot(x.k + i * x.d_row, x.dk + i * x.d_row, D_);
    if (with_costs_)
      for (Int o = 0; o < head_.orders(); ++o) {
        for (T* dcost : {x.dcost, x.dcost_back}) std::fill(dcost, dcost + n, T(0));
        orders.walks(o, [&](const Walk<T>& walk) {
          T* dcost = walk.reversed ? x.dcost_back : x.dcost;
          add_cost_grad(walk, n, x.products, x.c_row, x.mask, x.c_row, x.tokens.row, dcost);
        });
        put_costs(o, false, n, orders.tokens(), o == 0 || p_.decay_per_order, x);
      }
    finish({0, 0, false, true, true, true, true, false, false}, n, orders.tokens(), nullptr, nullptr, to, x);
  }

 private:
  void at_border(const Visit& visit) {
    Base::at_border(visit, [&](const Anchor& other) {
      Side& side = sides_[visit.from_right];
      settle(visit, visit.from_right, side.on, inner(side.u, other.x) + dot(side.u_sum, other.x_sum, D_));
      settle(visit, !visit.from_right, side.back, inner(side.x, other.u) + dot(side.x_sum, other.u_sum, D_));
    });
  }

  // The flow is known again. What it is off by has crept in bit by bit: every chunk since gets its share back.
  void settle(const Visit& visit, bool reverse, Flow& flow, double exact) {
    double off = exact - flow.value;
    for (Int k = 0; k < flow.carried; ++k) {
      Int c = visit.from_right ? flow.first - k : flow.first + k;
      T share = static_cast<T>(off * static_cast<double>(2 * k + 1) / static_cast<double>(2 * flow.carried));
      for (Int place = head_.first_of(c); place < head_.first_of(c) + head_.size_of(c); ++place)
        *at<T>(head_.dlog_decay(reverse), head_.b, head_.token(visit.order, place), head_.decay_head(visit.order)) +=
            share;
    }
    flow = {exact, visit.chunk, 0};
  }

  // Where a visit puts its gradients: into the results, if they have the layout for it, else into scratch.
  struct Target {
    T* data;
    Int row;
  };
  struct Targets {
    Target dq, dk, dv;
    bool in_place;
    bool fresh_dq, fresh_dk, fresh_dv;  // nothing there yet to add to
  };

  Targets targets(bool first, const Int* tokens, Int n, Scratch& x) const {
    if (!in_place_) return {{x.dq, x.d_row}, {x.dk, x.d_row}, {x.dv, x.v_row}, false, true, true, true};
    auto rows = [&](const Accumulator<T>& g) {
      return Target{g.out.template row<T>(tokens[0]), step_between<T>(g.out, tokens, n)};
    };
    return {rows(dq_), rows(dk_), rows(dv_), true, first, first, first};
  }

  double inner(const T* x, const T* y) const {
    double total = 0;
    for (Int i = 0; i < V_; ++i) total += dot(x + i * d_row_, y + i * d_row_, D_);
    return total;
  }

  void read(const Int* tokens, Int n, const T* queries, const T* keys, bool first, Scratch& x) {
    const T* unscaled = nullptr;
    gather(rows_of<T>(p_.k, p_, head_.b, head_.h), tokens, n, D_, keys, x.k, x.d_row);
    gather(rows_of<T>(p_.v, p_, head_.b, head_.h), tokens, n, V_, unscaled, x.v, x.v_row);
    if (!has_output(p_)) return;
    gather(rows_of<T>(p_.q, p_, head_.b, head_.h), tokens, n, D_, queries, x.q, x.d_row);
    read_gradients(head_, division_, first, tokens, n, x.g, x.v_row, x.dden, dden_, x.part);
  }

  // What the tokens of a block do to each other. Leaves in `products` scores times their gradients, masked if
  // `weighed`.
  void inside(Int order, Int n, const Int* tokens, bool weighed, Targets& to, Scratch& x) {
    Int padded = round_up(n, W<T>);
    bool masked = !head_.counts_in_full();
    transpose(x.k, x.d_row, n, D_, x.transposed, x.c_row);
    multiply<T>(n, n,
                {.c = x.scores,
                 .c_row = x.c_row,
                 .plain = {D_, x.q, x.d_row, 1, x.transposed, x.c_row},
                 .prefetch = &x.prefetch});
    transpose(x.v, x.v_row, n, V_, x.transposed, x.c_row);
    multiply<T>(n, n,
                {.c = x.dscores,
                 .c_row = x.c_row,
                 .plain = {V_, x.g, x.v_row, 1, x.transposed, x.c_row},
                 .prefetch = &x.prefetch});
    for (Int i = 0; i < n; ++i) {
      T *s = x.scores + i * x.c_row, *ds = x.dscores + i * x.c_row, *product = x.products + i * x.c_row;
      T* mask = x.mask + i * x.c_row;
      T own = s[i], own_grad = ds[i] + x.dden[i], own_weight = masked ? mask[i] : T(1);
      Vec<T> dden = splat(x.dden[i]);
      for (Int j = 0; masked && j < padded; j += W<T>) {
        Vec<T> m = load(mask + j), y = load(s + j), dy = load(ds + j) + dden;
        store(product + j, weighed ? y * dy * m : y * dy);
        store(s + j, y * m);
        store(ds + j, dy * m);
      }
      for (Int j = 0; !masked && j < padded; j += W<T>) store(ds + j, load(ds + j) + dden);
      if (p_.self_weight.data) {
        own = SelfWeight<T>::of(head_, tokens[i])(x.q + i * x.d_row, x.k + i * x.d_row, D_);
        s[i] = own * own_weight, ds[i] = 0;
        mask[i] = own_weight * own_grad;  // for own_gradients
      }
    }
    multiply<T>(n, D_,
                {.c = to.dq.data,
                 .c_row = to.dq.row,
                 .plain = {n, x.dscores, x.c_row, 1, x.k, x.d_row},
                 .fresh = to.fresh_dq,
                 .prefetch = &x.prefetch});
    multiply<T>(n, D_,
                {.c = to.dk.data,
                 .c_row = to.dk.row,
                 .plain = {n, x.dscores, 1, x.c_row, x.q, x.d_row},
                 .fresh = to.fresh_dk,
                 .prefetch = &x.prefetch});
    to.fresh_dq = to.fresh_dk = false;
    if (p_.self_weight.data)
      for (Int i = 0; i < n; ++i)
        own_gradients(head_, order, tokens[i], x.mask[i * x.c_row + i], x.q + i * x.d_row, x.k + i * x.d_row,
                      to.dq.data + i * to.dq.row, to.dk.data + i * to.dk.row);
  }

  // What crosses the chunk's borders.
  void across(const Visit& visit, Side& side, Int n, Crosses over, Targets& to, Scratch& x) {
    Crossing<T> going = {x.arrive, x.leave, {}}, coming = {x.arrive_back, x.leave_back, {}};
    if (over.enter_on || over.leave_on) cross(x.tokens.ahead, x.tokens.ahead_factors, n, false, going);
    if (over.enter_back || over.leave_back) cross(x.tokens.back, x.tokens.back_factors, n, true, coming);
    double arrived = 0, departed = 0;
    if (over.enter_on && has_output(p_)) {
      multiply<T>(
          n, D_,
          {.c = x.part, .c_row = x.d_row, .plain = {V_, x.g, x.v_row, 1, side.u, d_row_}, .prefetch = &x.prefetch});
      T after = 0;  // a token's cost is paid by all that arrive after it
      for (Int i = n - 1; i >= 0; --i) {
        x.dcost[i] += after;
        T here = add_row(x.part + i * x.d_row, side.u_sum, x.dden[i], x.arrive[i], x.q + i * x.d_row, to.fresh_dq,
                         to.dq.data + i * to.dq.row);
        after += here, arrived += here;
      }
      to.fresh_dq = false;
    }
    if (over.enter_back) {
      multiply<T>(
          n, D_,
          {.c = x.part, .c_row = x.d_row, .plain = {V_, x.v, x.v_row, 1, side.x, d_row_}, .prefetch = &x.prefetch});
      T after = 0;
      for (Int i = n - 1; i >= 0; --i) {
        T here = add_row(x.part + i * x.d_row, side.x_sum, T(1), x.arrive_back[i], x.k + i * x.d_row, to.fresh_dk,
                         to.dk.data + i * to.dk.row);
        after += here, departed += here;
        x.dcost_back[i] += after;
      }
      to.fresh_dk = false;
    }
    Product<T> entering = {over.enter_back ? D_ : 0, x.k, x.d_row, 1, side.x_rows, v_row_};
    Product<T> inside = {visit.inside && has_output(p_) ? n : 0, x.scores, 1, x.c_row, x.g, x.v_row};
    if (entering.K || inside.K) {
      multiply<T>(n, V_,
                  {.c = to.dv.data,
                   .c_row = to.dv.row,
                   .scaled = entering,
                   .row = x.arrive_back,
                   .plain = inside,
                   .fresh = to.fresh_dv,
                   .prefetch = &x.prefetch});
      to.fresh_dv = false;
    }
    if (with_flow_) flow(visit, side, n, arrived, departed, over, going.cross, coming.cross, x);
    if (p_.dlog_gain.data && !to.fresh_dk)  // while k is whole
      for (Int i = 0; i < n; ++i) x.dgain[i] = dot(x.k + i * x.d_row, to.dk.data + i * to.dk.row, D_);
    bool with_keys = division_.with_den() || has_states(p_);
    if (over.leave_on) {
      scale_rows(x.k, x.d_row, n, D_, x.leave);
      if (with_keys)
        add_columns(x.k, x.d_row, n, D_, static_cast<const T*>(nullptr), going.cross, side.u_sum, side.lost_u_sum);
      multiply<T>(V_, D_,
                  {.c = side.u,
                   .c_row = d_row_,
                   .plain = {n, x.v, 1, x.v_row, x.k, x.d_row},
                   .fresh = false,
                   .keep = going.cross,
                   .prefetch = &x.prefetch,
                   .lost = side.lost_u});
    }
    if (over.leave_back) {
      Int m = has_output(p_) ? n : 0;
      scale_rows(x.q, x.d_row, m, D_, x.leave_back);
      if (with_keys) add_columns<T>(x.q, x.d_row, m, D_, x.dden, coming.cross, side.x_sum, side.lost_x_sum);
      multiply<T>(D_, V_,
                  {.c = side.x_rows,
                   .c_row = v_row_,
                   .plain = {m, x.q, 1, x.d_row, x.g, x.v_row},
                   .fresh = false,
                   .keep = coming.cross,
                   .prefetch = &x.prefetch,
                   .lost = side.lost_x});
      transpose(side.x_rows, v_row_, D_, V_, side.x, d_row_);
      if (!visit.leave) end_gradients(head_, !visit.from_right, side.x_rows, v_row_, side.x_sum);
    }
    this->keep_last_anchor(visit);
  }

  // to += scale (row + weight sums); what of it falls on `with`
  T add_row(const T* row, const T* sums, T weight, T scale, const T* with, bool fresh, T* to) const {
    Vec<T> total = {}, w = splat(weight), s = splat(scale);
    for (Int j = 0; j < D_; j += W<T>) {
      Vec<T> y = (load(row + j) + w * load(sums + j)) * s;
      total += y * load(with + j);
      store(to + j, fresh ? y : load(to + j) + y);
    }
    return sum<T>(total);
  }

  // Walks from before the chunk to behind it pay every cost in it. The first visit knows what arrives and what
  // departs on its side; the second what comes over the border.
  void flow(const Visit& visit, Side& side, Int n, double arrived, double departed, Crosses over, Factor<T> going,
            Factor<T> coming, Scratch& x) {
    std::size_t c = static_cast<std::size_t>(visit.chunk);
    if (visit.inside) {
      side.arrivals[c] = arrived, side.departures[c] = departed;
      return;
    }
    const Side& other = sides_[!visit.from_right];
    bool right = visit.from_right;
    double on = 0, back = 0;
    if (over.on) on = pass(visit, right, side.on, arrived, other.departures[c], over.leave_on, going);
    if (over.back) back = pass(visit, !right, side.back, departed, other.arrivals[c], over.leave_back, coming);
    if (!head_.two_sided()) on += back, back = 0;
    for (Int i = 0; i < n; ++i) x.dcost[i] += static_cast<T>(on);
    if (head_.two_sided())
      for (Int i = 0; i < n; ++i) x.dcost_back[i] += static_cast<T>(back);
  }

  // What of a flow goes through; what starts here joins it.
  double pass(const Visit& visit, bool reverse, Flow& flow, double ends, double starts, bool leaves, Factor<T> cross) {
    double through = flow.value - ends;
    bool nothing = !leaves || cross(T(1)) < std::numeric_limits<T>::epsilon();
    if (nothing) {  // which is known exactly
      flow.value = through;
      settle(visit, reverse, flow, 0);
      flow = {starts, visit.from_right ? visit.chunk - 1 : visit.chunk + 1, 0};
      return 0;
    }
    flow.value = through + starts;
    flow.carried += 1;
    return through;
  }

  void finish(const Visit& visit, Int n, const Int* tokens, const T* queries, const T* keys, const Targets& to,
              Scratch& x) {
    if (p_.dlog_gain.data)
      for (Int i = 0; i < n; ++i) put(p_.dlog_gain, tokens[i], head_.h, x.dgain[i], visit.first);
    if (to.in_place) return;
    if (to.fresh_dq) std::fill(x.dq, x.dq + n * x.d_row, T(0));
    if (to.fresh_dk) std::fill(x.dk, x.dk + n * x.d_row, T(0));
    if (to.fresh_dv) std::fill(x.dv, x.dv + n * x.v_row, T(0));
    for (Int i = 0; i < n; ++i) {
      if (has_output(p_)) dq_.add(tokens[i], x.dq + i * x.d_row, queries ? queries[i] : T(1), visit.first, visit.last);
      dk_.add(tokens[i], x.dk + i * x.d_row, keys ? keys[i] : T(1), visit.first, visit.last);
      dv_.add(tokens[i], x.dv + i * x.v_row, 1, visit.first, visit.last);
    }
  }

  void put_costs(Int order, bool from_right, Int n, const Int* tokens, bool first, const Scratch& x) const {
    Int h = head_.decay_head(order);
    for (Int i = 0; i < n; ++i) put(head_.dlog_decay(from_right), tokens[i], h, x.dcost[i], first);
    if (head_.two_sided())
      for (Int i = 0; i < n; ++i) put(head_.dlog_decay(!from_right), tokens[i], h, x.dcost_back[i], first);
  }

  void put(const Rows& rows, Int t, Int h, T value, bool first) const {
    T* to = at<T>(rows, head_.b, t, h);
    *to = first ? value : *to + value;
  }

  bool in_place_;
};

}  // namespace
}  // namespace lion
