// Runs one problem of the kernels, read from the standard input, and writes its results to the standard output: for
// processors that are emulated, where there is no torch. Numbers are of the problem's dtype, tensors as arm.py lays
// them out; everything is contiguous.
#include <cstdio>
#include <vector>

#include "../../../lion/ops/cpu/src/problem.h"

extern "C" {
int lion_run(const lion::Problem* problem, int backward, const char* name);
const char* lion_instruction_set(const char* name);
}

namespace {

using Int = std::int64_t;
using lion::Rows;

struct Header {  // as arm.py writes it
  Int B, T, H, D, V, dtype, norm, direction, chunk, decay, channels, rate;
};

std::vector<std::vector<char>> memory;

char* room(Int bytes) {
  memory.emplace_back(static_cast<std::size_t>(bytes) + 64);
  return memory.back().data();
}

bool whole(bool fine) {
  if (!fine) std::fprintf(stderr, "the input ends too early\n");
  return fine;
}

}  // namespace

int main() {
  Header x;
  if (!whole(std::fread(&x, sizeof(x), 1, stdin) == 1)) return 2;
  Int size = x.dtype == lion::FLOAT64 ? 8 : 4;
  Int shared = x.rate ? 1 : x.H;  // heads of queries and keys
  auto tensor = [&](Int heads, Int columns, bool tokens = true) {
    char* data = room((tokens ? x.B * x.T : 1) * heads * columns * size);
    return tokens ? Rows{data, x.T * heads * columns, heads * columns, columns} : Rows{data, 0, 0, columns};
  };
  auto read = [&](Rows& rows, Int heads, Int columns, bool tokens = true) {
    rows = tensor(heads, columns, tokens);
    std::size_t count = static_cast<std::size_t>((tokens ? x.B * x.T : 1) * heads * columns);
    return whole(std::fread(rows.data, static_cast<std::size_t>(size), count, stdin) == count);
  };
  lion::Problem p = {};
  p.B = x.B, p.T = x.T, p.H = x.H, p.D = x.D, p.V = x.V, p.dtype = x.dtype, p.norm = x.norm, p.direction = x.direction;
  p.chunk = x.chunk, p.threads = 1, p.log_decay_channels = x.channels, p.self_weight_channels = 1;
  bool fine = read(p.q, shared, x.D) && read(p.k, shared, x.D) && read(p.v, x.H, x.V) && read(p.dout, x.H, x.V);
  if (x.decay) fine = fine && read(p.log_decay, x.H, x.channels);
  if (x.rate) fine = fine && read(p.rate, x.H, x.D, false);
  if (!fine) return 2;
  p.out = tensor(x.H, x.V), p.den = tensor(x.H, 1);
  p.dq = tensor(shared, x.D), p.dk = tensor(shared, x.D), p.dv = tensor(x.H, x.V);
  if (x.decay) p.dlog_decay = tensor(x.H, x.channels);
  if (x.rate) p.drate = tensor(x.H, x.D, false);
  for (int backward : {0, 1})
    if (int status = lion_run(&p, backward, "")) {
      std::fprintf(stderr, "lion_run gives %d\n", status);
      return 3;
    }
  auto write = [&](const Rows& rows, Int heads, Int columns, bool tokens = true) {
    std::fwrite(rows.data, static_cast<std::size_t>(size),
                static_cast<std::size_t>((tokens ? x.B * x.T : 1) * heads * columns), stdout);
  };
  write(p.out, x.H, x.V), write(p.dq, shared, x.D), write(p.dk, shared, x.D), write(p.dv, x.H, x.V);
  if (x.decay) write(p.dlog_decay, x.H, x.channels);
  if (x.rate) write(p.drate, x.H, x.D, false);
  std::fprintf(stderr, "%s", lion_instruction_set(""));
}
