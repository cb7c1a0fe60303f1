// The C interface: picks the kernels for this processor, and runs them on the OpenMP threads of the process.
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <new>
#include <stdexcept>
#include <string>
#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(LION_HAS_SVE256)
#include <sys/auxv.h>
#include <sys/prctl.h>
#endif

#include "chunk_size.h"
#include "problem.h"

namespace lion {

extern const Kernels baseline;
#if defined(LION_HAS_AVX2)
extern const Kernels avx2;
#endif
#if defined(LION_HAS_AVX512)
extern const Kernels avx512;
#endif
#if defined(LION_HAS_SVE256)
extern const Kernels sve256;
#endif

namespace {

enum Status { DONE, NO_MEMORY, NO_SUCH_INSTRUCTIONS, OUTSIDE, BAD_VALUES };

// The fastest first.
const Kernels* const ALL[] = {
#if defined(LION_HAS_AVX512)
    &avx512,
#endif
#if defined(LION_HAS_AVX2)
    &avx2,
#endif
#if defined(LION_HAS_SVE256)
    &sve256,
#endif
    &baseline,
};

bool runs_here(const Kernels& kernels) {
  (void)kernels;
#if defined(LION_HAS_AVX512)
  if (&kernels == &avx512)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
#endif
#if defined(LION_HAS_AVX2)
  if (&kernels == &avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
#if defined(LION_HAS_SVE256)
  // Linux says whether there is SVE, and how wide this process's vectors are, in bytes: the code is for 32 alone.
  constexpr unsigned long has_sve = 1 << 22;
  constexpr int get_width = 51, width = 0xffff;  // PR_SVE_GET_VL and PR_SVE_VL_LEN_MASK
  if (&kernels == &sve256) return (getauxval(AT_HWCAP) & has_sve) && (prctl(get_width, 0, 0, 0, 0) & width) == 32;
#endif
  return true;
}

const Kernels* find(const char* name) {
  for (const Kernels* kernels : ALL)
    if (runs_here(*kernels) && (!*name || !std::strcmp(name, kernels->name))) return kernels;
  return nullptr;
}

// torch has loaded an OpenMP library. We run on its threads and never on a second pool, which would fight
// with it for the cores. GOMP_parallel is there in GNU's and in LLVM's.
using GompParallel = void (*)(void (*)(void*), void*, unsigned, unsigned);

GompParallel pool() {
  static const GompParallel found = reinterpret_cast<GompParallel>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
  return found;
}

// Fresh memory of a large result comes page by page, each with a trap into the kernel. Ask for large pages.
void use_large_pages(const Rows& rows, std::int64_t batches, std::int64_t size) {
#if defined(MADV_HUGEPAGE)
  constexpr std::uintptr_t page = 1 << 21;
  std::uintptr_t first = reinterpret_cast<std::uintptr_t>(rows.data);
  std::uintptr_t last = first + static_cast<std::uintptr_t>(batches * rows.batch * size);
  first = (first + page - 1) / page * page, last = last / page * page;
  if (rows.data && last > first) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
#else
  (void)rows, (void)batches, (void)size;
#endif
}

struct Team {
  std::int64_t count;
  Task task;
  void* context;
  std::atomic<std::int64_t> next{0};
  std::atomic<int> failure{0};  // a Status

  static void work(void* self) {
    Team& team = *static_cast<Team*>(self);
    // Relaxed: a task need not see what another has written. The end of the pool's work is where all is seen.
    for (std::int64_t i; (i = team.next.fetch_add(1, std::memory_order_relaxed)) < team.count;) {
      try {
        if (!team.failure) team.task(team.context, i);
      } catch (const std::domain_error&) {  // nothing must leave the thread
        team.failure = BAD_VALUES;
      } catch (...) {
        team.failure = NO_MEMORY;
      }
    }
  }
};

void parallel(std::int64_t count, std::int64_t threads, Task task, void* context) {
  Team team{count, task, context};
  std::int64_t members = count < threads ? count : threads;
  if (members > 1 && pool())
    pool()(Team::work, &team, static_cast<unsigned>(threads), 0);
  else
    Team::work(&team);
  if (team.failure == BAD_VALUES) throw std::domain_error("values");
  if (team.failure) throw std::bad_alloc();
}

std::string layout() {
  std::string all;
  auto add = [&](const char* name, std::size_t offset, std::size_t size) {
    all += std::string(name) + " " + std::to_string(offset) + " " + std::to_string(size) + "\n";
  };
#define LION_OF_PROBLEM(type, field) add("Problem." #field, offsetof(Problem, field), sizeof(Problem::field));
#define LION_OF_DELTA(type, field) add("Delta." #field, offsetof(Delta, field), sizeof(Delta::field));
#define LION_OF_FEATURES(type, field) add("Features." #field, offsetof(Features, field), sizeof(Features::field));
  LION_PROBLEM(LION_OF_PROBLEM)
  LION_DELTA(LION_OF_DELTA)
  LION_FEATURES(LION_OF_FEATURES)
  return all;
}

// Exceptions end here.
template <class Work>
int guarded(Work work) {
  try {
    work();
  } catch (const std::out_of_range&) {
    return OUTSIDE;
  } catch (const std::domain_error&) {
    return BAD_VALUES;
  } catch (const std::exception&) {
    return NO_MEMORY;
  }
  return DONE;
}

}  // namespace
}  // namespace lion

#pragma GCC visibility push(default)
extern "C" {

// Returns a Status; library.py has the words for each.
int lion_run(const lion::Problem* problem, int backward, const char* name) {
  const lion::Kernels* kernels = lion::find(name);
  if (!kernels) return lion::NO_SUCH_INSTRUCTIONS;
  lion::Problem const& p = *problem;
  std::int64_t item = p.dtype == lion::FLOAT64 ? 8 : p.dtype == lion::FLOAT32 ? 4 : 2;
  if (backward)
    for (const lion::Rows* rows : {&p.dq, &p.dk, &p.dv}) lion::use_large_pages(*rows, p.B, item);
  else
    lion::use_large_pages(p.out, p.B, item);
  return lion::guarded([&] { (backward ? kernels->backward : kernels->forward)(p, lion::parallel); });
}

int lion_delta(const lion::Delta* problem, int backward, const char* name) {
  const lion::Kernels* kernels = lion::find(name);
  if (!kernels) return lion::NO_SUCH_INSTRUCTIONS;
  return lion::guarded([&] { kernels->delta(*problem, backward, lion::parallel); });
}

int lion_features(const lion::Features* features, const char* name) {
  const lion::Kernels* kernels = lion::find(name);
  if (!kernels) return lion::NO_SUCH_INSTRUCTIONS;
  return lion::guarded([&] { kernels->features(*features, lion::parallel); });
}

// Names, offsets and sizes of the structs' fields: library.py has to know the same.
const char* lion_layout() {
  static const std::string all = lion::layout();
  return all.c_str();
}

const char* lion_instruction_set(const char* name) {
  const lion::Kernels* kernels = lion::find(name);
  return kernels ? kernels->name : "";
}

int lion_has_thread_pool() { return lion::pool() != nullptr; }

// FLOP/s of all threads in multiply-adds.
double lion_peak(int double_precision, std::int64_t threads) {
  struct Work {
    const lion::Kernels* kernels;
    int double_precision;
  } work = {lion::find(""), double_precision};
  constexpr std::int64_t rounds = 200000;
  auto task = [](void* x, std::int64_t) {
    static_cast<Work*>(x)->kernels->multiply_add(static_cast<Work*>(x)->double_precision, rounds);
  };
  auto start = std::chrono::steady_clock::now();
  lion::parallel(threads, threads, task, &work);
  std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return static_cast<double>(threads * rounds * work.kernels->multiply_add(double_precision, 0)) / seconds.count();
}

std::int64_t lion_chunk_tokens(std::int64_t tokens, std::int64_t D, std::int64_t V, std::int64_t orders,
                               std::int64_t diagonal) {
  return lion::chunk_tokens(tokens, D, V, orders, diagonal != 0);
}
}
#pragma GCC visibility pop
