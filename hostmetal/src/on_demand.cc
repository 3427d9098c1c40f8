// Libraries of sources, and those of 'metal --deferred'. Kernels that came without their code are
// compiled when a pipeline asks for one.
#include "hostmetal/src/on_demand.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "hostmetal/src/digest.h"

namespace hostmetal {
namespace {

// A program that asks for many kernels asks for more: every so many calls of the compiler, each has
// one kernel more to make, so that some dozens of calls make all of a library and some few make
// little that is not used.
constexpr size_t kCallsPerKernel = 4;

bool IsAbsent(const metallib_kernel* entry) { return entry->flags & METALLIB_KERNEL_ABSENT; }

class OnDemandModule : public Module {
 public:
  OnDemandModule(Driver* driver, CompileJob job, std::shared_ptr<Module> tables)
      : driver_(driver), job_(std::move(job)), tables_(std::move(tables)) {
    for (const metallib_kernel* entry : kernels()) {
      if (IsAbsent(entry)) absent_.push_back(entry->name);
    }
  }
  const std::vector<const metallib_kernel*>& kernels() const override { return tables_->kernels(); }
  const metallib_gpu_library* gpu() const override { return tables_->gpu(); }
  bool FromSource() const override { return true; }
  std::string Bytes() const override { return tables_->Bytes(); }
  std::string Identity() const override {
    Digest digest;
    digest.Part(job_.source);
    for (const auto& macro : job_.macros) {
      digest.Part(macro.first);
      digest.Part(macro.second);
    }
    for (const std::string& option : {job_.standard, job_.math}) digest.Part(option);
    digest.Part(job_.wide ? "wide" : "");
    digest.Part(job_.logging ? "logging" : "");
    for (const std::string& argument : AskedByEnvironment()) digest.Part(argument);
    digest.Part(job_.checked ? CheckedForm() : "");
    return digest.Value();
  }

  // Calls of several threads run side by side, each with kernels of its own.
  Failure Complete(Kernel* kernel) override {
    const std::string name = kernel->entry->name;
    std::unique_lock<std::mutex> lock(mutex_);
    while (making_.count(name)) made_changed_.wait(lock);
    if (!made_.count(name)) {
      if (Failure failure = Make(name, &lock)) return failure;
    }
    auto found = made_.find(name);
    if (found == made_.end() || IsAbsent(found->second.second)) {
      return {kLibraryInternal, "[newComputePipelineState] the compiler made no code of '" + name +
                                    "'; HOSTMETAL_COMPILER may be of another version"};
    }
    kernel->module = found->second.first;
    kernel->entry = found->second.second;
    return {};
  }

 private:
  // Compiles `name` and the next ones that have no code. The lock is held, and let go meanwhile.
  Failure Make(const std::string& name, std::unique_lock<std::mutex>* lock) {
    // A library of files has thousands, of which a program wants few.
    const size_t more = job_.deferred ? 0 : calls_++ / kCallsPerKernel;
    size_t count = std::min(1 + more, absent_.size());
    auto at = std::find(absent_.begin(), absent_.end(), name);
    if (at != absent_.end()) std::rotate(absent_.begin(), at, absent_.end());
    CompileJob job = job_;
    job.kernels.assign(absent_.begin(), absent_.begin() + count);
    absent_.erase(absent_.begin(), absent_.begin() + count);
    making_.insert(job.kernels.begin(), job.kernels.end());
    lock->unlock();
    Failure failure;
    std::string bytes = CompileSource(job, &failure);
    std::shared_ptr<Module> module;
    if (!failure) module = driver_->LoadData(bytes, "source.metallib", job.checked, &failure);
    lock->lock();
    for (const std::string& made : job.kernels) making_.erase(made);
    if (module) {
      for (const metallib_kernel* entry : module->kernels()) made_[entry->name] = {module, entry};
    } else {
      absent_.insert(absent_.end(), job.kernels.begin(), job.kernels.end());
    }
    made_changed_.notify_all();
    return failure;
  }

  Driver* const driver_;
  const CompileJob job_;
  const std::shared_ptr<Module> tables_;
  std::mutex mutex_;
  std::condition_variable made_changed_;
  std::vector<std::string> absent_;  // not asked for so far
  std::set<std::string> making_;     // a thread is about them
  std::map<std::string, std::pair<std::shared_ptr<Module>, const metallib_kernel*>> made_;
  size_t calls_ = 0;
};

}  // namespace

std::shared_ptr<Module> CompileModule(Driver* driver, CompileJob job, Failure* failure) {
  std::string bytes = CompileSource(job, failure);
  if (*failure) return nullptr;
  auto module = driver->LoadData(bytes, "source.metallib", job.checked, failure);
  if (!module) return nullptr;
  if (!job.gpu.empty()) return module;
  return std::make_shared<OnDemandModule>(driver, std::move(job), std::move(module));
}

std::shared_ptr<Module> WithDeferredCode(Driver* driver, std::shared_ptr<Module> tables,
                                         bool checked) {
  // A GPU's code is in the library.
  if (!tables || !driver->CompilerTarget().empty()) return tables;
  CompileJob job;
  job.source = tables->Deferred();
  if (job.source.empty()) return tables;
  job.deferred = true;
  job.wide = driver->info().wide_vectors;
  job.checked = checked;
  // The same file again is the same module, with the code that it has by then.
  static auto* mutex = new std::mutex;
  static auto* loaded = new std::map<const Module*, std::weak_ptr<Module>>;
  std::lock_guard<std::mutex> lock(*mutex);
  std::weak_ptr<Module>& known = (*loaded)[tables.get()];
  if (auto module = known.lock()) return module;
  auto module = std::make_shared<OnDemandModule>(driver, std::move(job), std::move(tables));
  known = module;
  return module;
}

}  // namespace hostmetal
