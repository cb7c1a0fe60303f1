// Runs problems under the thread sanitizer: one from each line of numbers, on so many threads and on one, which have to
// give the same bits. The kernels take their threads from whatever OpenMP library the process has; here that is the
// function GOMP_parallel below, of std::threads, which the sanitizer knows. So all it reports is about the kernels.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "../../../lion/ops/cpu/src/problem.h"

extern "C" {
int lion_run(const lion::Problem* problem, int backward, const char* name);
int lion_features(const lion::Features* features, const char* name);
int lion_has_thread_pool();

__attribute__((visibility("default"))) void GOMP_parallel(void (*work)(void*), void* context, unsigned threads,
                                                          unsigned) {
  std::atomic<unsigned> there{0};
  auto together = [&] {  // or the first would have done all the work before the others are there
    for (++there; there < threads;) std::this_thread::yield();
    work(context);
  };
  std::vector<std::thread> others;
  for (unsigned i = 1; i < threads; ++i) others.emplace_back(together);
  together();
  for (std::thread& other : others) other.join();
}
}

namespace {

using Int = std::int64_t;
using lion::Rows;

// In the order of a line.
struct Line {
  long seed, B, T, H, D, V, dtype, norm, direction, threads, chunk;
  long decay;   // dimensions of log_decay: 0 is none
  long weight;  // of self_weight
  long gain, mask, orders, sequences, wide, map;
  long wrong;  // 1: a positive decay, 2: an order that is none, 3: all tokens write the same row
};
constexpr int FIELDS = sizeof(Line) / sizeof(long);

// The tensors of a problem, and what is written into them.
class Tensors {
 public:
  explicit Tensors(const Line& x) : x_(x), random_(static_cast<unsigned>(x.seed)) {}

  // [B, T, H, columns], or the last `dimensions` of it, with numbers from `low` to `high`
  Rows numbers(Int dtype, Int columns, int dimensions, double low, double high) {
    bool tokens = dimensions > 2;
    Int heads = x_.H, rows = tokens ? x_.B * x_.T * heads : heads, size = item(dtype);
    char* data = room(rows * columns * size);
    std::uniform_real_distribution<double> some(low, high);
    for (Int i = 0; i < rows * columns; ++i) put(dtype, data + i * size, some(random_));
    return {data, tokens ? x_.T * heads * columns : 0, tokens ? heads * columns : 0, columns};
  }

  Rows result(Int dtype, Int columns) {
    Rows rows = {room(x_.B * x_.T * x_.H * columns * item(dtype)), x_.T * x_.H * columns, x_.H * columns, columns};
    if (x_.wrong == 3) rows.batch = rows.token = rows.head = 0;
    results_.push_back(memory_.size() - 1);
    return rows;
  }

  Rows mask() {
    char* data = room(x_.B * x_.T);
    for (Int i = 0; i < x_.B * x_.T; ++i) data[i] = random_() % 4 != 0;
    return {data, x_.T, 1, 0};
  }

  const Int* borders() {
    Int* data = reinterpret_cast<Int*>(room((x_.sequences + 1) * 8));
    for (Int i = 1; i < x_.sequences; ++i) data[i] = static_cast<Int>(random_() % static_cast<unsigned>(x_.T + 1));
    std::sort(data + 1, data + x_.sequences);
    data[x_.sequences] = x_.T;
    return data;
  }

  const Int* orders(const Int* borders) {
    Int* data = reinterpret_cast<Int*>(room(x_.orders * x_.T * 8));
    for (Int o = 0; o < x_.orders; ++o) {
      Int* order = data + o * x_.T;
      for (Int t = 0; t < x_.T; ++t) order[t] = t;
      for (Int s = 0; s < std::max<Int>(x_.sequences, 1); ++s)
        std::shuffle(order + (borders ? borders[s] : 0), order + (borders ? borders[s + 1] : x_.T), random_);
    }
    if (x_.wrong == 2) data[x_.T / 2] = x_.T;
    return data;
  }

  std::vector<std::string> results() const {
    std::vector<std::string> all;
    for (std::size_t i : results_) all.emplace_back(memory_[i].begin(), memory_[i].end());
    return all;
  }

 private:
  static Int item(Int dtype) { return dtype == lion::FLOAT64 ? 8 : dtype == lion::FLOAT32 ? 4 : 2; }

  static void put(Int dtype, char* to, double x) {
    float narrow = static_cast<float>(x);
    if (dtype == lion::FLOAT64)
      std::memcpy(to, &x, 8);
    else if (dtype == lion::FLOAT32)
      std::memcpy(to, &narrow, 4);
    else
      std::memcpy(to, reinterpret_cast<char*>(&narrow) + 2, 2);
  }

  char* room(Int bytes) {
    memory_.emplace_back(static_cast<std::size_t>(bytes) + 64);
    return memory_.back().data();
  }

  const Line& x_;
  std::mt19937 random_;
  std::vector<std::vector<char>> memory_;
  std::vector<std::size_t> results_;
};

struct Outcome {
  int status;
  std::vector<std::string> results;
  bool operator==(const Outcome& other) const { return status == other.status && results == other.results; }
};

Outcome attention(const Line& x, Int threads) {
  Tensors make(x);
  Int sums = x.dtype == lion::FLOAT64 ? lion::FLOAT64 : lion::FLOAT32, out = x.wide ? sums : x.dtype;
  lion::Problem p = {};
  p.B = x.B, p.T = x.T, p.H = x.H, p.D = x.D, p.V = x.V;
  p.dtype = x.dtype, p.norm = x.norm, p.direction = x.direction, p.threads = threads;
  p.wide_out = x.wide, p.chunk = x.chunk, p.orders = x.orders, p.sequences = x.sequences;
  p.q = make.numbers(x.dtype, x.D, 4, 0.1, 1), p.k = make.numbers(x.dtype, x.D, 4, 0.1, 1);
  p.v = make.numbers(x.dtype, x.V, 4, -1, 1);
  p.log_decay_channels = x.decay % 2 ? 1 : x.D, p.self_weight_channels = x.weight % 2 ? 1 : x.D;
  double most = x.wrong == 1 ? 2 : 0;
  if (x.decay) p.log_decay = make.numbers(sums, p.log_decay_channels, static_cast<int>(x.decay), -2, most);
  if (!x.decay) p.log_decay_channels = 1;
  if (x.weight) p.self_weight = make.numbers(sums, p.self_weight_channels, static_cast<int>(x.weight), 0.1, 1);
  if (x.gain) p.log_gain = make.numbers(sums, 1, 3, -3, 3);
  if (x.mask) p.mask = make.mask();
  if (x.sequences) p.cu_seqlens = make.borders();
  if (x.orders) p.order = make.orders(p.cu_seqlens);
  p.out = make.result(out, x.V);
  if (x.norm != lion::NONE) p.den = make.result(sums, 1);
  if (x.norm == lion::RAW && x.gain) p.log_scale = make.result(sums, 1);
  if (int status = lion_run(&p, 0, "")) return {status, {}};
  p.dout = make.numbers(out, x.V, 4, -1, 1);
  if (x.norm == lion::RAW) p.dden = make.numbers(sums, 1, 3, -1, 1);
  p.dq = make.result(x.dtype, x.D), p.dk = make.result(x.dtype, x.D), p.dv = make.result(x.dtype, x.V);
  if (x.decay) p.dlog_decay = make.result(sums, p.log_decay_channels);
  if (x.gain) p.dlog_gain = make.result(sums, 1);
  if (x.weight) p.dself_weight = make.result(sums, p.self_weight_channels);
  int status = lion_run(&p, 1, "");
  return {status, status ? std::vector<std::string>{} : make.results()};
}

Outcome features(const Line& x, Int threads) {
  Tensors make(x);
  lion::Features f = {};
  f.B = x.B, f.T = x.T, f.H = x.H, f.D = x.D, f.map = x.map - 1, f.dtype = x.dtype, f.threads = threads;
  f.x = make.numbers(x.dtype, x.D, 4, -3, 3), f.out = make.result(x.dtype, x.D);
  if (int status = lion_features(&f, "")) return {status, {}};
  f.backward = 1, f.dy = make.numbers(x.dtype, x.D, 4, -1, 1), f.out = make.result(x.dtype, x.D);
  int status = lion_features(&f, "");
  return {status, make.results()};
}

}  // namespace

int main() {
  if (!lion_has_thread_pool()) return std::puts("no thread pool: link with -rdynamic"), 2;
  for (;;) {
    long numbers[FIELDS];
    for (long& number : numbers)
      if (std::scanf("%ld", &number) != 1) return 0;
    Line x;
    std::memcpy(&x, numbers, sizeof x);
    auto run = x.map ? features : attention;
    Outcome many = run(x, x.threads), one = run(x, 1);
    std::printf("%d %s\n", many.status, many == one ? "same" : "different");
    std::fflush(stdout);
  }
}
