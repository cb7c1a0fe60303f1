// What crosses from Python to here: sizes, pointers and strides, every field 64 bits wide. library.py packs it.
#pragma once

#include <cstdint>

namespace lion {

enum Dtype : std::int64_t { FLOAT32, FLOAT64, BFLOAT16 };
enum Norm : std::int64_t { NONE, SUM, MAX, RAW };  // RAW: num, den and their log scale, undivided
enum Direction : std::int64_t { FORWARD = 1, BACKWARD = 2, BOTH = 3 };

// [B, T, H] rows; strides in elements, the last dimension contiguous. A null pointer: not given.
struct Rows {
  void* data;
  std::int64_t batch, token, head;
};

struct Problem {
  std::int64_t B, T, H, D, V;
  std::int64_t dtype, norm, direction, threads;
  std::int64_t wide_out;                  // out and dout are float for BFLOAT16, too
  std::int64_t chunk;                     // tokens; 0: ours to choose
  std::int64_t orders, sequences;         // how many; sequences is 0 if nothing is packed
  Rows q, k, v;                           // dtype
  Rows log_decay, log_gain, self_weight;  // float, or double for FLOAT64
  std::int64_t log_decay_channels;        // 1 or D
  std::int64_t self_weight_channels;      // 1 or D
  std::int64_t decay_per_order;           // log_decay has H heads for each order, one order after the other
  Rows mask;                              // bool
  const std::int64_t* cu_seqlens;         // [sequences + 1]
  const std::int64_t* order;              // [orders, T], contiguous
  Rows out, den, log_scale;               // out in dtype unless it is wide, the others float or double
  // Only for the backward pass. Gradients that are not wanted are null.
  Rows dout, dden;
  Rows dq, dk, dv;                           // dtype
  Rows dlog_decay, dlog_gain, dself_weight;  // float or double
};

enum Map : std::int64_t { UNIT_SILU, ELU_PLUS_ONE };

struct Features {  // of x [B, T, H, D]; with `backward`, out is the gradient of x, and may be dy
  std::int64_t B, T, H, D;
  std::int64_t map, dtype, backward, threads;
  Rows x, dy, out;  // dtype
};

// Runs task(context, i) for every i below `count` on the threads of the pool.
using Task = void (*)(void* context, std::int64_t i);
using Parallel = void (*)(std::int64_t count, std::int64_t threads, Task task, void* context);

struct Kernels {  // of one instruction set
  const char* name;
  void (*forward)(const Problem&, Parallel);
  void (*backward)(const Problem&, Parallel);
  void (*features)(const Features&, Parallel);
  // Nothing but multiply-adds, so many rounds of them; returns the FLOPs of a round.
  std::int64_t (*multiply_add)(int double_precision, std::int64_t rounds);
};

}  // namespace lion
