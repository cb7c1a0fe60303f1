// The delta rule in chunks. A token takes back what the state holds under its key before it writes: with the state S
// that arrives at a chunk, what its tokens write is the solution u of a triangular system (docs/maths.md),
//
//     u_i = beta_i e_i,   e_i = v_i - a_i k_i S - sum_(j < i) N_ij u_j,   N_ij = m_ij k_i . k_j,
//     y_i = a_i q_i S + sum_(j <= i) P_ij u_j,                            P_ij = m_ij q_i . k_j,
//     S'  = keep S + sum_j l_j k_j u_j^T,
//
// where m_ij is what the decays leave of token j's weight on arrival at i, a_i of the state's, and l_j and keep of both
// behind the chunk. Heads are independent, and each is one thread's: the same bits for any number of threads.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <stdexcept>

#include "decay.h"
#include "gemm.h"
#include "memory.h"

namespace lion {
namespace {

template <class T>
class DeltaRule {
 public:
  DeltaRule(const Delta& p, bool backward) : p_(p), backward_(backward) {
    chunk_ = std::max<Int>(1, std::min(p.chunk ? p.chunk : CHUNK, p.T));
    chunks_ = (p.T + chunk_ - 1) / chunk_;
    d_row_ = leading<T>(p.D), v_row_ = leading<T>(p.V), c_row_ = leading<T>(chunk_);
    ways_ = (p.direction & FORWARD ? 1 : 0) + (p.direction & REVERSE ? 1 : 0);
    extra_ = static_cast<T>(ways_ - (p.include_self ? 1 : 0));
  }

  void run(Parallel parallel) {
    parallel(p_.B * p_.H, p_.threads, [](void* x, Int i) { static_cast<DeltaRule*>(x)->head(i); }, this);
  }

 private:
  static constexpr Int CHUNK = 32;  // as many products as their own squares cost
  static constexpr Int SOLVED = 8;  // rows of the system that are solved one by one; the others come as products
  static constexpr Int ROWS = 16;   // of a triangle, beyond whose diagonal little is computed

  // Matrices have padded rows: d_row_, v_row_ or c_row_ by their columns. Where two are named, the second lies below
  // the first, [2 n, .].
  struct Scratch {
    Prefetch* prefetch;  // of the rows of the chunk that comes next
    Int* tokens;
    T *beta, *cost, *arrives, *leaves, *segment;  // [chunk]
    T *kq, *keys;                                 // keys and queries; the keys transposed
    T *scores, *mask;                             // -N and P; m
    T *v, *e, *u, *more, *out;                    // more: a product on its way to e, or what u leaves behind
    T* state;                                     // [D, V]
    bool decays;
    // Only for the backward pass.
    T *gradients, *arriving;        // of e (G), and of out; and times a
    T *du, *turned, *read;          // turned: u, or a state, transposed; read: what the state makes of the gradients
    T *dscores, *across, *dk, *dq;  // of N and P, then without the mask; [n, 2 n] what falls on keys from these
    T *adjoint, *states, *kept;     // the state's gradient; all chunks' states, and all tokens' e
    T *dcost, *passing, *by_departure;  // [chunk]
  };

  struct Walk {
    Int b, h;
    bool reverse, first, last;  // of the walks over this head

    Int token(Int place, Int length) const { return reverse ? length - 1 - place : place; }
  };

  void head(Int i) {
    NoDenormals guard;
    thread_local Buffer memory;
    Arena count;
    take(count);
    Arena arena(memory.reserve(count.used()));
    Scratch x = take(arena);
    for (bool reverse : {false, true}) {
      if (!(p_.direction & (reverse ? REVERSE : FORWARD))) continue;
      Walk walk = {i / p_.H, i % p_.H, reverse, !reverse || ways_ == 1, reverse || ways_ == 1};
      backward_ ? gradients(walk, x) : outputs(walk, x);
    }
  }

  Scratch take(Arena& arena) const {
    Scratch x = {};
    x.prefetch = arena.take<Prefetch>(1), x.tokens = arena.take<Int>(chunk_);
    for (T** y : {&x.beta, &x.cost, &x.arrives, &x.leaves, &x.segment}) *y = arena.take<T>(c_row_);
    x.kq = arena.take<T>(2 * chunk_ * d_row_), x.keys = arena.take<T>(p_.D * c_row_);
    x.scores = arena.take<T>(2 * chunk_ * c_row_), x.mask = arena.take<T>(chunk_ * c_row_);
    for (T** y : {&x.v, &x.e, &x.u, &x.more, &x.out}) *y = arena.take<T>(chunk_ * v_row_);
    x.state = arena.take<T>(p_.D * v_row_);
    if (!backward_) return x;
    for (T** y : {&x.gradients, &x.arriving}) *y = arena.take<T>(2 * chunk_ * v_row_);
    x.du = arena.take<T>(chunk_ * v_row_);
    x.turned = arena.take<T>(std::max<Int>(p_.V, 1) * std::max(d_row_, c_row_));
    x.read = arena.take<T>(2 * chunk_ * d_row_);
    x.dscores = arena.take<T>(2 * chunk_ * c_row_), x.across = arena.take<T>(2 * chunk_ * 2 * c_row_);
    for (T** y : {&x.dk, &x.dq}) *y = arena.take<T>(chunk_ * d_row_);
    x.adjoint = arena.take<T>(p_.D * v_row_);
    x.states = arena.take<T>(chunks_ * p_.D * v_row_), x.kept = arena.take<T>(chunks_ * chunk_ * v_row_);
    for (T** y : {&x.dcost, &x.passing, &x.by_departure}) *y = arena.take<T>(c_row_);
    return x;
  }

  // Forwards

  void outputs(const Walk& walk, Scratch& x) {
    bool carries = enter(walk, p_.entering, x.state);
    for (Int c = 0; c < chunks_; ++c) {
      bool leaves = c + 1 < chunks_ || p_.leaving[walk.reverse].sums;
      Int n = read(walk, c, true, x);
      prefetch(walk, c + 1, {{&p_.k, p_.D}, {&p_.q, p_.D}, {&p_.v, p_.V}, {&p_.out, p_.V}}, x);
      gather<T>(rows(p_.v, walk), x.tokens, n, p_.V, nullptr, x.v, v_row_);
      scores(n, true, x);
      solve(n, x.state, carries, x);
      for (Int i = 0; i < n; i += ROWS) {
        Int m = std::min(ROWS, n - i);
        Sum<T> sum = {.c = x.out + i * v_row_, .c_row = v_row_, .prefetch = x.prefetch};
        if (carries) sum.scaled = {p_.D, x.kq + (n + i) * d_row_, d_row_, 1, x.state, v_row_}, sum.row = x.arrives + i;
        sum.plain = {i + m, x.scores + (n + i) * c_row_, c_row_, 1, x.u, v_row_};
        multiply(m, p_.V, sum);
      }
      write_outputs(walk, n, x);
      if (leaves) leave(n, carries, x.state, x);
      carries = true;
    }
    put(walk, p_.leaving, x.state);
  }

  // Every walk has brought the token itself along; it counts once, or not at all.
  void write_outputs(const Walk& walk, Int n, Scratch& x) const {
    HeadRows to = rows(p_.out, walk);
    for (Int i = 0; i < n; ++i) {
      T* out = x.out + i * v_row_;
      if (walk.last && extra_) {
        Vec<T> own = splat(extra_ * x.beta[i] * x.scores[(n + i) * c_row_ + i]);
        for (Int j = 0; j < p_.V; j += W<T>) store(out + j, load(out + j) - own * load(x.v + i * v_row_ + j));
      }
      add(to, x.tokens[i], out, p_.V, walk.first);
    }
  }

  // Of chunk c: its tokens as the walk meets them, keys and queries, and what they cost.
  Int read(const Walk& walk, Int c, bool queries, Scratch& x) const {
    Int first = c * chunk_, n = std::min(chunk_, p_.T - first);
    for (Int i = 0; i < n; ++i) x.tokens[i] = walk.token(first + i, p_.T);
    gather<T>(rows(p_.k, walk), x.tokens, n, p_.D, nullptr, x.kq, d_row_);
    if (queries) gather<T>(rows(p_.q, walk), x.tokens, n, p_.D, nullptr, x.kq + n * d_row_, d_row_);
    for (Int i = 0; i < n; ++i) x.beta[i] = *at<T>(p_.beta, walk.b, x.tokens[i], walk.h);
    const Rows& costs = walk.reverse ? p_.cost_reverse : p_.cost;
    x.decays = costs.data;
    if (!x.decays) {
      std::fill(x.arrives, x.arrives + c_row_, T(1)), std::fill(x.leaves, x.leaves + c_row_, T(1));
      return n;
    }
    for (Int i = 0; i < n; ++i) {
      x.cost[i] = *at<T>(costs, walk.b, x.tokens[i], walk.h);
      if (!(x.cost[i] <= 0)) throw std::domain_error("log_decay");
    }
    // A row's exponents are the row's before it and one cost more: nothing cancels, whatever the decays.
    std::fill(x.segment, x.segment + c_row_, T(0));
    for (Int i = 0; i < n; ++i) {
      T* row = x.mask + i * c_row_;
      for (Int j = 0; j <= i; j += W<T>) store(row + j, exp_negative(load(x.segment + j)));
      x.arrives[i] = row[0];
      for (Int j = 0; j <= i; j += W<T>) store(x.segment + j, load(x.segment + j) + x.cost[i]);
      for (Int j = i + 1; j < round_up(i + 1, W<T>); ++j) x.segment[j] = 0;
    }
    for (Int j = 0; j < n; j += W<T>) store(x.leaves + j, exp_negative(load(x.segment + j)));
    return n;
  }

  // -N, and P if it is wanted.
  void scores(Int n, bool queries, Scratch& x) const {
    transpose(x.kq, d_row_, n, p_.D, x.keys, c_row_);
    for (Int part = 0; part < 1 + queries; ++part) {
      for (Int i = 0; i < n; i += ROWS) {
        Int m = std::min(ROWS, n - i), row = part * n + i;
        Sum<T> sum = {.c = x.scores + row * c_row_, .c_row = c_row_, .prefetch = x.prefetch};
        sum.plain = {p_.D, x.kq + row * d_row_, d_row_, 1, x.keys, c_row_};
        multiply(m, i + m, sum);
      }
      for (Int i = 0; i < n; ++i) mask(x.scores + (part * n + i) * c_row_, i, n, part == 1, T(part ? 1 : -1), x);
    }
  }

  // A row of a triangle, with the diagonal or without: times the mask and a sign, and 0 beyond.
  void mask(T* row, Int i, Int n, bool diagonal, T sign, const Scratch& x) const {
    Int end = i + diagonal;
    for (Int j = 0; j < end; j += W<T>) {
      Vec<T> y = load(row + j) * sign;
      store(row + j, x.decays ? y * load(x.mask + i * c_row_ + j) : y);
    }
    std::fill(row + end, row + std::max(end, round_up(n, W<T>)), T(0));
  }

  // e and u, with v in x.v.
  void solve(Int n, const T* state, bool carries, Scratch& x) const {
    if (carries) {
      Sum<T> sum = {.c = x.more, .c_row = v_row_, .prefetch = x.prefetch};
      sum.plain = {p_.D, x.kq, d_row_, 1, state, v_row_};
      multiply(n, p_.V, sum);
    }
    for (Int first = 0; first < n; first += SOLVED) {
      Int m = std::min(SOLVED, n - first);
      for (Int i = first; i < first + m; ++i)
        for (Int j = 0; j < p_.V; j += W<T>) {
          Vec<T> v = load(x.v + i * v_row_ + j);
          store(x.e + i * v_row_ + j, carries ? v - load(x.more + i * v_row_ + j) * x.arrives[i] : v);
        }
      if (first) {
        Sum<T> sum = {x.e + first * v_row_, v_row_};
        sum.plain = {first, x.scores + first * c_row_, c_row_, 1, x.u, v_row_}, sum.fresh = false;
        multiply(m, p_.V, sum);
      }
      for (Int i = first; i < first + m; ++i) {
        const T* row = x.scores + i * c_row_;
        for (Int j = 0; j < p_.V; j += W<T>) {
          Vec<T> e = load(x.e + i * v_row_ + j);
          for (Int l = first; l < i; ++l) e += load(x.u + l * v_row_ + j) * row[l];
          store(x.e + i * v_row_ + j, e);
          store(x.u + i * v_row_ + j, e * x.beta[i]);
        }
      }
    }
  }

  // The state behind a chunk.
  void leave(Int n, bool carries, T* state, Scratch& x) const {
    const T* u = x.u;
    if (x.decays) {
      std::copy(x.u, x.u + n * v_row_, x.more);
      scale_rows(x.more, v_row_, n, p_.V, x.leaves);
      u = x.more;
    }
    Sum<T> sum = {.c = state, .c_row = v_row_, .prefetch = x.prefetch};
    sum.plain = {n, x.kq, 1, d_row_, u, v_row_}, sum.fresh = !carries, sum.keep = {0, x.leaves[0]};
    multiply(p_.D, p_.V, sum);
  }

  // Backwards: the walk once more for its states and e; then from its last chunk to its first, with the gradient of the
  // state. With G the gradient of e, and A, B what falls on N and P without the mask,
  //
  //     du = P^T dy + l (K dS'),   lambda = du - N^T G,   G = beta lambda,   dbeta = lambda . e,   dv = G,
  //     dS = keep dS' + Q^T (a dy) - K^T (a G),
  //     dq = B K + a dy S^T,       dk = (A + A^T) K + B^T Q - a G S^T + l u dS'^T.

  void gradients(const Walk& walk, Scratch& x) {
    bool entered = enter(walk, p_.entering, x.state);
    for (Int c = 0; c < chunks_; ++c) {
      std::copy(x.state, x.state + p_.D * v_row_, x.states + c * p_.D * v_row_);
      bool carries = entered || c;
      Int n = read(walk, c, false, x);
      prefetch(walk, c + 1, {{&p_.k, p_.D}, {&p_.v, p_.V}}, x);
      gather<T>(rows(p_.v, walk), x.tokens, n, p_.V, nullptr, x.v, v_row_);
      scores(n, false, x);
      solve(n, x.state, carries, x);
      std::copy(x.e, x.e + n * v_row_, x.kept + c * chunk_ * v_row_);
      if (c + 1 < chunks_) leave(n, carries, x.state, x);
    }
    bool returns = enter(walk, p_.dleaving, x.adjoint);
    for (Int c = chunks_ - 1; c >= 0; --c) {
      back(walk, c, entered || c, returns, x);
      returns = true;
    }
    put(walk, p_.dentering, x.adjoint);
  }

  void back(const Walk& walk, Int c, bool carries, bool returns, Scratch& x) const {
    Int n = read(walk, c, true, x);
    prefetch(walk, c - 1,
             {{&p_.k, p_.D}, {&p_.q, p_.D}, {&p_.dout, p_.V}, {&p_.dq, p_.D}, {&p_.dk, p_.D}, {&p_.dv, p_.V}}, x);
    const T *state = x.states + c * p_.D * v_row_, *e = x.kept + c * chunk_ * v_row_;
    T *G = x.gradients, *dy = x.gradients + n * v_row_;
    gather<T>(rows(p_.dout, walk), x.tokens, n, p_.V, nullptr, dy, v_row_);
    scores(n, true, x);
    std::copy(e, e + n * v_row_, x.u);
    scale_rows(x.u, v_row_, n, p_.V, x.beta);

    Sum<T> du = {.c = x.du, .c_row = v_row_, .prefetch = x.prefetch};
    if (returns) du.scaled = {p_.D, x.kq, d_row_, 1, x.adjoint, v_row_}, du.row = x.leaves;
    du.plain = {n, x.scores + n * c_row_, 1, c_row_, dy, v_row_};
    multiply(n, p_.V, du);
    solve_transposed(n, G, x);

    if (carries) {  // what the state makes of both gradients
      transpose(state, v_row_, p_.D, p_.V, x.turned, d_row_);
      Sum<T> read = {.c = x.read, .c_row = d_row_, .prefetch = x.prefetch};
      read.plain = {p_.V, x.gradients, v_row_, 1, x.turned, d_row_};
      multiply(2 * n, p_.D, read);
    }
    transpose(x.u, v_row_, n, p_.V, x.turned, c_row_);
    Sum<T> dscores = {.c = x.dscores, .c_row = c_row_, .prefetch = x.prefetch};
    dscores.plain = {p_.V, x.gradients, v_row_, 1, x.turned, c_row_};
    multiply(2 * n, n, dscores);
    if (x.decays) costs_inside(n, x);
    for (Int i = 0; i < n; ++i) {
      mask(x.dscores + i * c_row_, i, n, false, T(-1), x);
      mask(x.dscores + (n + i) * c_row_, i, n, true, T(1), x);
    }
    gradients_of_keys(n, returns, x);
    Sum<T> dq = {.c = x.dq, .c_row = d_row_, .prefetch = x.prefetch};
    dq.plain = {n, x.dscores + n * c_row_, c_row_, 1, x.kq, d_row_};
    multiply(n, p_.D, dq);
    if (x.decays) costs_across(walk, n, carries, returns, state, x);
    write_gradients(walk, n, carries, e, x);

    std::copy(x.gradients, x.gradients + 2 * n * v_row_, x.arriving);
    for (Int i = 0; i < n; ++i)
      for (Int j = 0; j < p_.V; j += W<T>) {
        T *of_e = x.arriving + i * v_row_ + j, *of_out = x.arriving + (n + i) * v_row_ + j;
        store(of_e, load(of_e) * -x.arrives[i]), store(of_out, load(of_out) * x.arrives[i]);
      }
    Sum<T> adjoint = {x.adjoint, v_row_};
    adjoint.plain = {2 * n, x.kq, 1, d_row_, x.arriving, v_row_};
    adjoint.fresh = !returns, adjoint.keep = {0, x.leaves[0]};
    multiply(p_.D, p_.V, adjoint);
  }

  // lambda, in du, and G.
  void solve_transposed(Int n, T* G, Scratch& x) const {
    for (Int end = n; end > 0;) {
      Int first = round_down(end - 1, SOLVED);
      if (end < n) {
        Sum<T> sum = {x.du + first * v_row_, v_row_};
        sum.plain = {n - end, x.scores + end * c_row_ + first, 1, c_row_, G + end * v_row_, v_row_};
        sum.fresh = false;
        multiply(end - first, p_.V, sum);
      }
      for (Int i = end - 1; i >= first; --i)
        for (Int j = 0; j < p_.V; j += W<T>) {
          Vec<T> lambda = load(x.du + i * v_row_ + j);
          for (Int l = i + 1; l < end; ++l) lambda += load(G + l * v_row_ + j) * x.scores[l * c_row_ + i];
          store(x.du + i * v_row_ + j, lambda);
          store(G + i * v_row_ + j, lambda * x.beta[i]);
        }
      end = first;
    }
  }

  // Of leaving a token, by the pairs of tokens on both sides of it: sums of what was multiplied by the mask.
  void costs_inside(Int n, Scratch& x) const {
    std::fill(x.passing, x.passing + c_row_, T(0));
    x.dcost[n - 1] = 0;
    for (Int i = n - 1; i > 0; --i) {
      const T *N = x.scores + i * c_row_, *P = x.scores + (n + i) * c_row_;
      const T *dN = x.dscores + i * c_row_, *dP = x.dscores + (n + i) * c_row_;
      Vec<T> all = {};
      for (Int j = 0; j < i; j += W<T>) {  // scores of -N are 0 on the diagonal, those of P are not
        Vec<T> products = load(N + j) * load(dN + j) + load(P + j) * load(dP + j);
        for (Int l = i - j; l < W<T>; ++l) products[l] = 0;
        products += load(x.passing + j);
        store(x.passing + j, products);
        for (Int l = i - j; l < W<T>; ++l) products[l] = 0;
        all += products;
      }
      x.dcost[i - 1] = sum<T>(all);
    }
  }

  // And by the states: that which arrives is read by the tokens behind, what is written is in that which leaves.
  void costs_across(const Walk& walk, Int n, bool carries, bool returns, const T* state, Scratch& x) const {
    T through = 0;
    if (carries && returns) {
      Vec<T> all = {};
      for (Int d = 0; d < p_.D; ++d)
        for (Int j = 0; j < p_.V; j += W<T>) all += load(state + d * v_row_ + j) * load(x.adjoint + d * v_row_ + j);
      through = sum<T>(all) * x.leaves[0];
    }
    const HeadRows to = rows(walk.reverse ? p_.dcost_reverse : p_.dcost, walk);
    T behind = 0;
    for (Int i = n - 1; i >= 0; --i) {
      x.dcost[i] += behind + through;
      if (!carries) continue;
      const T *k = x.kq + i * d_row_, *q = x.kq + (n + i) * d_row_;
      T read = dot(q, x.read + (n + i) * d_row_, p_.D) - dot(k, x.read + i * d_row_, p_.D);
      behind += x.arrives[i] * read;
    }
    T before = 0;
    for (Int i = 0; i < n; ++i) {
      before += x.by_departure[i];
      *to.row<T>(x.tokens[i]) = x.dcost[i] + before;
    }
  }

  void gradients_of_keys(Int n, bool returns, Scratch& x) const {
    Int row = 2 * c_row_;
    transpose(x.dscores, c_row_, n, n, x.across, row);
    for (Int i = 0; i < n; ++i)
      for (Int j = 0; j < n; j += W<T>)
        store(x.across + i * row + j, load(x.across + i * row + j) + load(x.dscores + i * c_row_ + j));
    // Behind the n columns there, not in whole vectors: those of P^T.
    for (Int i = 0; i < n; ++i)
      for (Int j = 0; j < n; ++j) x.across[i * row + n + j] = x.dscores[(n + j) * c_row_ + i];
    Sum<T> sum = {x.dk, d_row_};
    if (returns) {
      transpose(x.adjoint, v_row_, p_.D, p_.V, x.turned, d_row_);
      sum.plain = {p_.V, x.u, v_row_, 1, x.turned, d_row_}, sum.last_row = x.leaves;
      multiply(n, p_.D, sum);
    }
    for (Int i = 0; i < n; ++i) x.by_departure[i] = returns ? dot(x.kq + i * d_row_, x.dk + i * d_row_, p_.D) : T(0);
    Sum<T> inside = {x.dk, d_row_};
    inside.plain = {2 * n, x.across, row, 1, x.kq, d_row_}, inside.fresh = !returns;
    multiply(n, p_.D, inside);
  }

  void write_gradients(const Walk& walk, Int n, bool carries, const T* e, Scratch& x) const {
    HeadRows dq = rows(p_.dq, walk), dk = rows(p_.dk, walk), dv = rows(p_.dv, walk), dbeta = rows(p_.dbeta, walk);
    bool own = walk.last && extra_;
    if (own) gather<T>(rows(p_.v, walk), x.tokens, n, p_.V, nullptr, x.v, v_row_);
    for (Int i = 0; i < n; ++i) {
      const T *k = x.kq + i * d_row_, *q = x.kq + (n + i) * d_row_, *dy = x.gradients + (n + i) * v_row_;
      T *to_q = x.dq + i * d_row_, *to_k = x.dk + i * d_row_, *to_v = x.gradients + i * v_row_;
      T of_beta = dot(x.du + i * v_row_, e + i * v_row_, p_.V);
      if (carries)
        for (Int d = 0; d < p_.D; d += W<T>) {
          store(to_q + d, load(to_q + d) + load(x.read + (n + i) * d_row_ + d) * x.arrives[i]);
          store(to_k + d, load(to_k + d) - load(x.read + i * d_row_ + d) * x.arrives[i]);
        }
      T score = x.scores[(n + i) * c_row_ + i];
      if (own) {
        T down = extra_ * dot(dy, x.v + i * v_row_, p_.V);
        of_beta -= score * down;
        for (Int d = 0; d < p_.D; d += W<T>) {
          store(to_q + d, load(to_q + d) - load(k + d) * (x.beta[i] * down));
          store(to_k + d, load(to_k + d) - load(q + d) * (x.beta[i] * down));
        }
      }
      add(dq, x.tokens[i], to_q, p_.D, walk.first);
      add(dk, x.tokens[i], to_k, p_.D, walk.first);
      if (own)  // G itself is still needed
        for (Int j = 0; j < p_.V; j += W<T>)
          store(x.out + j, load(to_v + j) - load(dy + j) * (extra_ * x.beta[i] * score));
      add(dv, x.tokens[i], own ? x.out : to_v, p_.V, walk.first);
      add(dbeta, x.tokens[i], &of_beta, 1, walk.first);
    }
  }

  // Rows and states of the caller

  struct Touched {
    const Rows* rows;
    Int columns;
  };

  void prefetch(const Walk& walk, Int c, std::initializer_list<Touched> touched, Scratch& x) const {
    x.prefetch->clear();
    if (c < 0 || c >= chunks_) return;
    Int first = c * chunk_, last = std::min(first + chunk_, p_.T);
    for (const Touched& y : touched) {
      HeadRows from = rows(*y.rows, walk);
      for (Int i = first; i < last; ++i)
        x.prefetch->add(from.row<char>(walk.token(i, p_.T)), y.columns * Int(sizeof(T)));
    }
  }

  HeadRows rows(const Rows& x, const Walk& walk) const {
    Int size = sizeof(T);
    return {static_cast<char*>(x.data) + (walk.b * x.batch + walk.h * x.head) * size, x.token * size, false};
  }

  static void add(const HeadRows& to, Int token, const T* x, Int columns, bool first) {
    Accumulator<T>{to, nullptr, columns, 0}.add(token, x, 1, first, true);
  }

  bool enter(const Walk& walk, const Pair& from, T* state) const {
    std::fill(state, state + p_.D * v_row_, T(0));
    const T* given = static_cast<const T*>(from[walk.reverse].sums);
    if (!given) return false;
    given += (walk.b * p_.H + walk.h) * p_.D * p_.V;
    for (Int d = 0; d < p_.D; ++d) std::copy(given + d * p_.V, given + (d + 1) * p_.V, state + d * v_row_);
    return true;
  }

  void put(const Walk& walk, const Pair& to, const T* state) const {
    T* wanted = static_cast<T*>(to[walk.reverse].sums);
    if (!wanted) return;
    wanted += (walk.b * p_.H + walk.h) * p_.D * p_.V;
    for (Int d = 0; d < p_.D; ++d) std::copy(state + d * v_row_, state + d * v_row_ + p_.V, wanted + d * p_.V);
  }

  const Delta& p_;
  bool backward_;
  Int chunk_, chunks_, d_row_, v_row_, c_row_, ways_;
  T extra_;
};

void delta(const Delta& p, bool backward, Parallel parallel) {
  if (p.dtype == FLOAT64)
    DeltaRule<double>(p, backward).run(parallel);
  else
    DeltaRule<float>(p, backward).run(parallel);
}

}  // namespace
}  // namespace lion
