// A handler of SIGSEGV and SIGBUS that knows the threads which run kernels and leaves all others to
// the handlers that were there before it.
#include "hostmetal/src/cpu/page_fault.h"

#include <signal.h>

#include <mutex>

namespace hostmetal {
namespace {

struct Run {
  void* home[5];  // __builtin_setjmp's
  uint64_t address;
};

// Static, as a handler must not be the first to ask for it: that could allocate.
__attribute__((tls_model("initial-exec"))) thread_local Run* running = nullptr;

struct sigaction before[2];

void Handle(int signal, siginfo_t* info, void* context) {
  // A kernel holds no lock and owns nothing: it can be left anywhere, from its fibers' stacks too.
  if (Run* run = running) {
    running = nullptr;
    // A number that is no address at all is not told.
    bool told = info->si_code > 0 && info->si_code != SI_KERNEL;
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

__attribute__((noinline)) bool RunUntilPageFault(const metallib_kernel& kernel,
                                                 const metallib_launch& launch, uint64_t first,
                                                 uint64_t count, void* scratch, uint64_t* address) {
  static std::once_flag once;
  std::call_once(once, Install);
  Run run;
  uint64_t* volatile result = address;
  if (__builtin_setjmp(run.home)) {
    *result = run.address;
    return true;
  }
  running = &run;
  kernel.run(&launch, first, count, scratch);
  running = nullptr;
  return false;
}

}  // namespace hostmetal
