// Handlers of SIGSEGV and SIGBUS, and of the signal that ends kernels that run for too long. They
// know the threads which run kernels and leave all others to the handlers that were there before
// them.
#include "hostmetal/src/cpu/page_fault.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <mutex>

namespace hostmetal {
namespace {

// Nothing happens where it has no handler, so that one which comes late is no harm.
constexpr int kInterrupt = SIGURG;
constexpr size_t kSignalStack = size_t{64} << 10;

struct Run {
  void* home[5];  // __builtin_setjmp's
  const std::atomic<bool>* expired;
  End end;
  uint64_t address;
};

// Static, as a handler must not be the first to ask for it: that could allocate.
__attribute__((tls_model("initial-exec"))) thread_local Run* running = nullptr;

struct sigaction before[2], before_interrupt;

void HandleInterrupt(int signal, siginfo_t* info, void* context) {
  Run* run = running;
  if (run && run->expired && run->expired->load(std::memory_order_relaxed)) {
    running = nullptr;
    run->end = End::kTimeout;
    __builtin_longjmp(run->home, 1);
  }
  const struct sigaction& old = before_interrupt;
  if (old.sa_flags & SA_SIGINFO) {
    old.sa_sigaction(signal, info, context);
  } else if (old.sa_handler != SIG_DFL && old.sa_handler != SIG_IGN) {
    old.sa_handler(signal);
  }
}

void Handle(int signal, siginfo_t* info, void* context) {
  // A kernel holds no lock and owns nothing: it can be left anywhere, from its fibers' stacks too.
  if (Run* run = running) {
    running = nullptr;
    // A number that is no address at all is not told.
    bool told = info->si_code > 0 && info->si_code != SI_KERNEL;
    run->end = End::kPageFault;
    run->address = told ? reinterpret_cast<uint64_t>(info->si_addr) : UINT64_MAX;
    __builtin_longjmp(run->home, 1);
  }
  struct sigaction& old = before[signal == SIGBUS];
  if (old.sa_flags & SA_SIGINFO) {
    old.sa_sigaction(signal, info, context);
  } else if (old.sa_handler == SIG_DFL || old.sa_handler == SIG_IGN) {
    // Back to the instruction, which faults again; a signal that was sent is sent again.
    sigaction(signal, &old, nullptr);
    if (info->si_code <= 0) raise(signal);
  } else {
    old.sa_handler(signal);
  }
}

void Install() {
  struct sigaction action = {};
  action.sa_sigaction = Handle;
  // Not blocked meanwhile, as the handler may not return.
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &before[0]);
  sigaction(SIGBUS, &action, &before[1]);
}

}  // namespace

__attribute__((noinline)) End RunGuarded(const metallib_kernel& kernel,
                                         const metallib_launch& launch, uint64_t first,
                                         uint64_t count, void* scratch,
                                         const std::atomic<bool>* expired, uint64_t* address) {
  static std::once_flag once;
  std::call_once(once, Install);
  Run run;
  run.expired = expired;
  uint64_t* volatile result = address;
  if (__builtin_setjmp(run.home)) {
    *result = run.address;
    return run.end;
  }
  running = &run;
  // An interrupt may have come before this thread was seen to run.
  if (expired && expired->load()) {
    running = nullptr;
    return End::kTimeout;
  }
  kernel.run(&launch, first, count, scratch);
  running = nullptr;
  return End::kDone;
}

void Interrupt(int thread) { syscall(SYS_tgkill, getpid(), thread, kInterrupt); }

namespace {

// A thread's stack for signals, unless it has one.
class SignalStack {
 public:
  SignalStack() {
    stack_t now;
    if (sigaltstack(nullptr, &now) != 0 || !(now.ss_flags & SS_DISABLE)) return;
    void* memory = mmap(nullptr, kSignalStack, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return;
    stack_t own = {};
    own.ss_sp = memory;
    own.ss_size = kSignalStack;
    if (sigaltstack(&own, nullptr) == 0) {
      memory_ = memory;
    } else {
      munmap(memory, kSignalStack);
    }
  }
  ~SignalStack() {
    if (!memory_) return;
    stack_t now, none = {};
    none.ss_flags = SS_DISABLE;
    // Another one may have come in its place.
    if (sigaltstack(nullptr, &now) == 0 && now.ss_sp == memory_) sigaltstack(&none, nullptr);
    munmap(memory_, kSignalStack);
  }

 private:
  void* memory_ = nullptr;
};

void InstallInterrupt() {
  struct sigaction action = {};
  action.sa_sigaction = HandleInterrupt;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(kInterrupt, &action, &before_interrupt);
}

void SetBlocked(bool block, bool* was) {
  sigset_t one, old;
  sigemptyset(&one);
  sigaddset(&one, kInterrupt);
  pthread_sigmask(block ? SIG_BLOCK : SIG_UNBLOCK, &one, &old);
  if (was) *was = sigismember(&old, kInterrupt) == 1;
}

}  // namespace

Interruptible::Interruptible() {
  static std::once_flag once;
  std::call_once(once, InstallInterrupt);
  static thread_local SignalStack stack;
  SetBlocked(false, &blocked_);
}

Interruptible::~Interruptible() {
  if (blocked_) SetBlocked(true, nullptr);
}

}  // namespace hostmetal
