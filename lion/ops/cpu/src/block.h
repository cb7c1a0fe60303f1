// A block of tokens in the order of the walk: its mask, and the gradients of its costs. A few columns at a time stay in
// registers while the walk goes through the rows. (decay.h has walks in any order.)
#pragma once

#include "decay.h"

namespace lion {
namespace {

template <class T>
struct Lanes {  // 1 in some lanes of a vector and 0 in the others: parts of one row of numbers
  static constexpr Int w = W<T>;
  alignas(64) static constexpr auto steps = [] {
    struct Row {
      T one[2 * w] = {}, below[2 * w] = {}, above[2 * w] = {};
    } row;
    row.one[w] = 1;
    for (Int i = 0; i < w; ++i) row.below[i] = row.above[w + i] = 1;
    return row;
  }();
  static Vec<T> at(Int lane) { return load(steps.one + w - lane); }
  static Vec<T> below(Int lane) { return load(steps.below + w - lane); }
  static Vec<T> above(Int lane) { return load(steps.above + w - 1 - lane); }
};

template <Int I>
using Index = std::integral_constant<Int, I>;

// f(Index<0>), f(Index<1>), ...; or from the last down
template <Int N, class F>
inline void each_index(F f) {
  [&]<std::size_t... I>(std::index_sequence<I...>) { (f(Index<Int(I)>()), ...); }(std::make_index_sequence<N>());
}
template <Int N, class F>
inline void each_index_down(F f) {
  each_index<N>([&](auto i) { f(Index<N - 1 - i.value>()); });
}

// f(Index<vectors>, first column) for groups of up to 4 vectors that cover n columns
template <class T, class F>
inline void each_columns(Int n, F f) {
  Int first = 0;
  for (; first + 3 * W<T> < n; first += 4 * W<T>) f(Index<4>(), first);
  switch ((n - first + W<T> - 1) / W<T>) {
    case 3:
      return f(Index<3>(), first);
    case 2:
      return f(Index<2>(), first);
    case 1:
      return f(Index<1>(), first);
  }
}

// What has become, on arrival at each row below, of a weight of 1 put down at each of these columns' tokens.
template <class T, Int N>
inline void mask_ahead(const Factor<T>* factors, Int n, Int first, T* mask, Int mask_row) {
  Vec<T> weights[N] = {};
  Int i = first;
  each_index<N>([&](auto own) {
    for (Int lane = 0; lane < W<T> && i < n; ++lane, ++i) {
      const Factor<T> decay = factors[i];
      each_index<own.value + 1>([&](auto v) {
        store(mask + i * mask_row + first + v.value * W<T>, weights[v.value]);
        if (v.value == own.value) weights[v.value] += Lanes<T>::at(lane);
        weights[v.value] = decay(weights[v.value]);
      });
    }
  });
  for (; i < n; ++i) {
    const Factor<T> decay = factors[i];
    each_index<N>([&](auto v) {
      store(mask + i * mask_row + first + v.value * W<T>, weights[v.value]);
      weights[v.value] = decay(weights[v.value]);
    });
  }
}

// The same for the rows above. `add`: the vectors on the diagonal hold what comes from the other side.
template <class T, Int N>
inline void mask_back(const Factor<T>* factors, Int n, Int first, bool add, T* mask, Int mask_row) {
  Vec<T> weights[N] = {};
  each_index_down<N>([&](auto own) {
    Int begin = first + own.value * W<T>;
    for (Int i = std::min(n, begin + W<T>) - 1; i >= begin; --i) {
      const Factor<T> decay = factors[i];
      each_index<N - own.value>([&](auto ahead) {
        constexpr Int v = own.value + ahead.value;
        T* to = mask + i * mask_row + first + v * W<T>;
        store(to, add && v == own.value ? load(to) + weights[v] : weights[v]);
        if (v == own.value) weights[v] += Lanes<T>::at(i - begin);
        weights[v] = decay(weights[v]);
      });
    }
  });
  for (Int i = first - 1; i >= 0; --i) {
    const Factor<T> decay = factors[i];
    each_index<N>([&](auto v) {
      store(mask + i * mask_row + first + v.value * W<T>, weights[v.value]);
      weights[v.value] = decay(weights[v.value]);
    });
  }
}

// The mask [n, n] of tokens in order, ahead and back, each if given, with ones on the diagonal.
template <class T>
inline void block_mask(const Factor<T>* ahead, const Factor<T>* back, Int n, T* mask, Int mask_row) {
  NoDenormals guard;
  if (!ahead || !back)
    for (Int i = 0; i < n; ++i) std::fill(mask + i * mask_row, mask + i * mask_row + round_up(n, W<T>), T(0));
  each_columns<T>(n, [&](auto count, Int first) {
    if (ahead) mask_ahead<T, count.value>(ahead, n, first, mask, mask_row);
    if (back) mask_back<T, count.value>(back, n, first, ahead, mask, mask_row);
  });
  for (Int i = 0; i < n; ++i) mask[i * mask_row + i] = 1;
}

// sums [n] += those of rows of one vector
template <class T>
inline void add_row_sums(const T* rows, Int n, T* sums) {
  for (Int i = 0; i < n; i += W<T>) {
    T turned[W<T> * W<T>];
    Int m = std::min(W<T>, n - i);
    transpose(rows + i * W<T>, W<T>, m, W<T>, turned, W<T>);
    Vec<T> total = {};
    for (Int j = 0; j < W<T>; ++j) total += load(turned + j * W<T>);
    for (Int j = 0; j < m; ++j) sums[i + j] += total[j];
  }
}

// The gradient of the cost of leaving each token, added to grad [n]: what passes over that edge, the sum of weighed
// [n, n], scores times their gradients and masked, over all rows after it and all columns up to it. totals [n, W] is
// scratch.
template <class T>
inline void add_cost_grad_ahead(Int n, const T* weighed, Int row, T* totals, T* grad) {
  std::fill(totals, totals + n * W<T>, T(0));
  each_columns<T>(n, [&](auto count, Int first) {
    constexpr Int N = count.value;
    Vec<T> passing[N] = {};
    for (Int i = n - 1; i >= first + N * W<T>; --i) {
      Vec<T> total = load(totals + i * W<T>);
      each_index<N>([&](auto v) {
        passing[v.value] += load(weighed + i * row + first + v.value * W<T>);
        total += passing[v.value];
      });
      store(totals + i * W<T>, total);
    }
    each_index_down<N>([&](auto own) {
      Int begin = first + own.value * W<T>;
      for (Int i = std::min(n, begin + W<T>) - 1; i >= begin; --i) {
        Vec<T> total = load(totals + i * W<T>), before = Lanes<T>::below(i - begin);
        each_index<own.value + 1>([&](auto v) {
          Vec<T> x = passing[v.value] + load(weighed + i * row + first + v.value * W<T>);
          passing[v.value] = v.value == own.value ? (before != 0 ? x : Vec<T>{}) : x;
          total += passing[v.value];
        });
        store(totals + i * W<T>, total);
      }
    });
  });
  add_row_sums(totals + W<T>, n - 1, grad);
}

template <class T>
inline void add_cost_grad_back(Int n, const T* weighed, Int row, T* totals, T* grad) {
  std::fill(totals, totals + n * W<T>, T(0));
  each_columns<T>(n, [&](auto count, Int first) {
    constexpr Int N = count.value;
    Vec<T> passing[N] = {};
    for (Int i = 0; i < first; ++i) {
      Vec<T> total = load(totals + i * W<T>);
      each_index<N>([&](auto v) {
        passing[v.value] += load(weighed + i * row + first + v.value * W<T>);
        total += passing[v.value];
      });
      store(totals + i * W<T>, total);
    }
    each_index<N>([&](auto own) {
      Int begin = first + own.value * W<T>;
      for (Int i = begin; i < std::min(n, begin + W<T>); ++i) {
        Vec<T> total = load(totals + i * W<T>), after = Lanes<T>::above(i - begin);
        each_index<N - own.value>([&](auto ahead) {
          constexpr Int v = own.value + ahead.value;
          Vec<T> x = passing[v] + load(weighed + i * row + first + v * W<T>);
          passing[v] = v == own.value ? (after != 0 ? x : Vec<T>{}) : x;
          total += passing[v];
        });
        store(totals + i * W<T>, total);
      }
    });
  });
  add_row_sums(totals, n - 1, grad + 1);
}

}  // namespace
}  // namespace lion
