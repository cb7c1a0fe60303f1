// What crosses from Python to here: sizes, pointers and strides, every field 64 bits wide. library.py fills it.
#pragma once

#include <cstdint>

namespace lion {

using Int = std::int64_t;
using Ints = const Int*;

enum Dtype : std::int64_t { FLOAT32, FLOAT64, BFLOAT16 };
// RAW: num, den and their log scale, undivided. NO_OUTPUT: nothing but the states that leave.
enum Norm : std::int64_t { NONE, SUM, MAX, RAW, NO_OUTPUT };
enum Direction : std::int64_t { FORWARD = 1, REVERSE = 2, BOTH = 3 };

// [B, T, H] rows; strides in elements, the last dimension contiguous. A null pointer: not given.
struct Rows {
  void* data;
  std::int64_t batch, token, head;
};

// What a walk brings over an end of the piece: float, or double for FLOAT64; contiguous. A null pointer: not given.
struct State {
  void *sums, *keys;  // [B, H, D, V] and [B, H, D]
  void* log_scale;    // [B, H], with gates
};

struct Pair {  // of the forward walk and of the reverse walk
  State states[2];
  const State& operator[](bool reverse) const { return states[reverse]; }
};

// The fields of the structs by type and name, in one place: library.py names the same, and compares (`lion_layout`).
// clang-format off
#define LION_PROBLEM(X)                                                                                            \
  X(Int, B) X(Int, T) X(Int, H) X(Int, D) X(Int, V)                                                                \
  X(Int, dtype) X(Int, norm) X(Int, direction) X(Int, threads)                                                     \
  X(Int, wide_out)                                           /* out and dout are float for BFLOAT16, too */        \
  X(Int, chunk)                                              /* tokens; 0: ours to choose */                       \
  X(Int, orders) X(Int, sequences)                           /* how many; sequences is 0 if nothing is packed */   \
  X(Rows, q) X(Rows, k) X(Rows, v)                           /* dtype */                                           \
  X(Rows, log_decay) X(Rows, log_gain) X(Rows, self_weight)  /* float, or double for FLOAT64 */                    \
  X(Rows, log_decay_reverse)                                 /* of the reverse walk; null: as log_decay */         \
  X(Int, log_decay_channels) X(Int, self_weight_channels)    /* 1 or D */                                          \
  X(Int, decay_between)                                      /* by channel: a key pays not for its own token */    \
  X(Int, gates_absorbed)                                     /* by channel: costs may be above 0 by rounding */    \
  X(Int, decay_per_order)                                    /* log_decay has H heads for each order in turn */    \
  X(Rows, rate) X(Rows, rate_reverse)                        /* [H, D]: log_decay is [B, T, H] steps, each cost */ \
                                                             /* is -step * rate, and q and k have no heads */      \
  X(Rows, mask)                                              /* bool */                                            \
  X(Ints, cu_seqlens) X(Ints, order)                         /* [sequences + 1], [orders, T] */                    \
  X(Rows, out)                                               /* dtype, unless it is wide */                        \
  X(Rows, den) X(Rows, log_scale)                            /* float or double */                                 \
  X(Pair, entering) X(Pair, leaving)                                                                               \
  /* Only for the backward pass. Gradients that are not wanted are null. */                                        \
  X(Rows, dout) X(Rows, dden)                                                                                      \
  X(Rows, dq) X(Rows, dk) X(Rows, dv)                        /* dtype */                                           \
  X(Rows, dlog_decay) X(Rows, dlog_gain) X(Rows, dself_weight) X(Rows, dlog_decay_reverse)                         \
  X(Rows, drate) X(Rows, drate_reverse)                                                                            \
  X(Pair, dentering) X(Pair, dleaving)                       /* without log_scale */

#define LION_DELTA(X)                                                                                              \
  X(Int, B) X(Int, T) X(Int, H) X(Int, D) X(Int, V)                                                                \
  X(Int, dtype)                                              /* FLOAT32 or FLOAT64, of all tensors */              \
  X(Int, direction) X(Int, include_self) X(Int, threads)                                                           \
  X(Int, chunk)                                              /* tokens; 0: ours to choose */                       \
  X(Rows, q) X(Rows, k) X(Rows, v) X(Rows, beta)                                                                   \
  X(Rows, cost) X(Rows, cost_reverse)                        /* log decays of the walks; null: none */             \
  X(Rows, out)                                                                                                     \
  X(Pair, entering) X(Pair, leaving)                         /* sums alone */                                      \
  /* Only for the backward pass. */                                                                                \
  X(Rows, dout)                                                                                                    \
  X(Rows, dq) X(Rows, dk) X(Rows, dv) X(Rows, dbeta) X(Rows, dcost) X(Rows, dcost_reverse)                         \
  X(Pair, dentering) X(Pair, dleaving)

#define LION_FEATURES(X)                                                                                           \
  X(Int, B) X(Int, T) X(Int, H) X(Int, D)                                                                          \
  X(Int, map) X(Int, dtype) X(Int, backward) X(Int, threads)                                                       \
  X(Rows, x) X(Rows, dy)                                     /* [B, T, H, D], dtype */                             \
  X(Rows, out)                                               /* with `backward` the gradient of x, and may be dy */
// clang-format on

#define LION_DECLARE(type, name) type name;
struct Problem {
  LION_PROBLEM(LION_DECLARE)
};
struct Delta {
  LION_DELTA(LION_DECLARE)
};
struct Features {
  LION_FEATURES(LION_DECLARE)
};
#undef LION_DECLARE

inline bool has_output(const Problem& p) { return p.norm != NO_OUTPUT; }
inline bool has_den(const Problem& p) { return p.norm == SUM || p.norm == MAX || p.norm == RAW; }

enum Map : std::int64_t { UNIT_SILU, ELU_PLUS_ONE };

// Runs task(context, i) for every i below `count` on the threads of the pool.
using Task = void (*)(void* context, std::int64_t i);
using Parallel = void (*)(std::int64_t count, std::int64_t threads, Task task, void* context);

struct Kernels {  // of one instruction set
  const char* name;
  void (*forward)(const Problem&, Parallel);
  void (*backward)(const Problem&, Parallel);
  void (*delta)(const Delta&, bool backward, Parallel);
  void (*features)(const Features&, Parallel);
  // Nothing but multiply-adds, so many rounds of them; returns the FLOPs of a round.
  std::int64_t (*multiply_add)(int double_precision, std::int64_t rounds);
};

}  // namespace lion
