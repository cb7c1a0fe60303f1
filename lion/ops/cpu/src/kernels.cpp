// Compiled once per instruction set; LION_KERNELS names the table it defines.
#include <memory>

#include "delta.h"
#include "diagonal_backward.h"
#include "diagonal_forward.h"
#include "features.h"
#include "selective_scan.h"
#include "state.h"
#include "stepwise.h"

namespace lion {
namespace {

// All heads of a call: each by one thread or, if there are few, by one thread from either side.
template <class T, class Pass>
class Heads {
 public:
  explicit Heads(const Problem& p) : p_(p), sequences_(p), count_(sequences_.size() * p.H) {
    longest_chunk_ = 1;
    for (Int s = 0; s < sequences_.size(); ++s)
      longest_chunk_ = std::max(longest_chunk_, std::min(sequences_[s].tokens, chunk_of(p, sequences_[s].tokens)));
  }

  void run(Parallel parallel) {
    bool uneven = count_ < 4 * p_.threads && count_ % p_.threads;
    if (!uneven || sequences_.longest() <= longest_chunk_) {
      group_ = std::min(GROUP, std::max<Int>(1, count_ / p_.threads));
      Int groups = sequences_.size() * ((p_.H + group_ - 1) / group_);
      parallel(groups, p_.threads, [](void* x, Int i) { static_cast<Heads*>(x)->group(i); }, this);
      return;
    }
    for (Int i = 0; i < count_; ++i) shared_.push_back(std::make_unique<Shared>(*this, i));
    for (order_ = 0; order_ < std::max<Int>(p_.orders, 1); ++order_)
      for (second_ = 0; second_ < 2; ++second_)
        parallel(2 * count_, p_.threads, [](void* x, Int i) { static_cast<Heads*>(x)->half(i / 2, i % 2); }, this);
  }

 private:
  using Scratch = typename Pass::Scratch;
  static constexpr Int GROUP = 4;

  struct Shared {
    Head<T> head;
    Pass pass;
    Shared(const Heads& all, Int i) : head(all.p_, all.sequences_[i / all.p_.H], i % all.p_.H), pass(head) {}
  };

  Scratch scratch() const {
    thread_local Buffer memory;
    Arena count;
    Scratch x;
    x.take(count, p_, longest_chunk_);
    Arena arena(memory.reserve(count.used()));
    x.take(arena, p_, longest_chunk_);
    return x;
  }

  // Neighbouring heads go through the tokens together: their rows lie side by side in memory.
  void group(Int i) {
    Scratch x = scratch();
    Int per_sequence = (p_.H + group_ - 1) / group_;
    Int s = i / per_sequence, first = i % per_sequence * group_;
    std::vector<std::unique_ptr<Shared>> heads;
    for (Int h = first; h < std::min(p_.H, first + group_); ++h)
      heads.push_back(std::make_unique<Shared>(*this, s * p_.H + h));
    Shared& one = *heads[0];
    for (Int order = 0; order < one.head.orders(); ++order)
      for (bool second : {false, true})
        for (bool from_right : {false, true}) go(heads, order, from_right, second, x);
  }

  void half(Int i, bool from_right) {
    Scratch x = scratch();
    Shared* one[] = {shared_[static_cast<std::size_t>(i)].get()};
    go(one, order_, from_right, second_, x);
  }

  template <class Some>
  static void go(Some& heads, Int order, bool from_right, bool second, Scratch& x) {
    Shared& one = **std::begin(heads);
    if (!one.pass.walks(from_right)) return;
    if (Pass::all_orders_at_once && one.head.one_block() && one.head.orders() > 1) {
      if (order == 0 && !second)
        for (auto& head : heads) head->pass.visit_all(x);
      return;
    }
    bool both = one.pass.walks(!from_right);
    if (!second)
      for (auto& head : heads) head->pass.start(from_right);
    visit_half(one.head, order, from_right, second, both, [&](const Visit& v) {
      for (auto head = std::begin(heads); head != std::end(heads); ++head) {
        auto next = std::next(head);
        if (one.head.one_block())
          x.prefetch.clear();  // a short head is read faster than it is said where it lies
        else if (next != std::end(heads))
          (*next)->pass.prefetch(v, 0, x);
        else
          one.pass.prefetch(v, 1, x);
        (*head)->pass.visit(v, x);
      }
    });
  }

  const Problem& p_;
  Sequences sequences_;
  Int count_, longest_chunk_;
  Int group_ = 1, order_ = 0, second_ = 0;
  std::vector<std::unique_ptr<Shared>> shared_;
};

// Without decay every token sees every other in full: by way of one state or, if they are few, directly.
bool counted_directly(const Problem& p) {
  Int longest = p.sequences ? 0 : p.T;
  for (Int s = 0; s < p.sequences; ++s) longest = std::max(longest, p.cu_seqlens[s + 1] - p.cu_seqlens[s]);
  bool plain = !p.orders && !p.log_gain.data && !p.chunk;
  return plain && longest <= tokens_counted_directly(p.D, p.V);
}

template <class T>
void run(const Problem& p, bool backward, Parallel parallel) {
  if (p.rate.data) return SelectiveScan<T>(p, backward).run(parallel);
  bool one_state = !p.log_decay.data && !p.self_weight.data && p.direction == BOTH && !has_states(p);
  if (one_state && counted_directly(p)) one_state = false;
  bool diagonal = p.log_decay_channels > 1;
  if (one_state)
    OneState<T>(p, backward).run(parallel);
  else if (Stepwise<T>::fits(p))
    Stepwise<T>(p, backward).run(parallel);
  else if (diagonal && backward)
    Heads<T, DiagonalBackward<T>>(p).run(parallel);
  else if (diagonal)
    Heads<T, DiagonalForward<T>>(p).run(parallel);
  else if (backward)
    Heads<T, Backward<T>>(p).run(parallel);
  else
    Heads<T, Forward<T>>(p).run(parallel);
}

void forward(const Problem& p, Parallel parallel) {
  p.dtype == FLOAT64 ? run<double>(p, false, parallel) : run<float>(p, false, parallel);
}

void backward(const Problem& p, Parallel parallel) {
  p.dtype == FLOAT64 ? run<double>(p, true, parallel) : run<float>(p, true, parallel);
}

// In as many independent chains as keep the units busy.
template <class T, std::size_t... I>
Int multiply_adds(Int rounds, std::index_sequence<I...>) {
  Vec<T> x[] = {splat<T>(T(I))...};
  Vec<T> a = splat<T>(T(0.999)), b = splat<T>(T(1e-3));
  auto step = [&](Vec<T>& y) {
    y = y * a + b;
    // So that the compiler does not find a shorter way.
#if defined(__AVX512F__) || (defined(__AVX__) && LION_VECTOR_BYTES <= 32) || \
    (defined(__SSE2__) && LION_VECTOR_BYTES <= 16)
    asm volatile("" : "+x"(y));
#elif defined(__aarch64__)
    asm volatile("" : "+w"(y));
#else
    asm volatile("" : "+m"(y));
#endif
  };
  for (Int i = 0; i < rounds; ++i) (step(x[I]), ...);
  return 2 * static_cast<Int>(sizeof...(I)) * W<T>;
}

Int multiply_add(int double_precision, Int rounds) {
  std::make_index_sequence<12> chains;
  return double_precision ? multiply_adds<double>(rounds, chains) : multiply_adds<float>(rounds, chains);
}

}  // namespace

extern const Kernels LION_KERNELS = {LION_NAME, forward, backward, delta, features, multiply_add};

}  // namespace lion
