// Libraries of sources. Kernels that came without their code are compiled when a pipeline asks for
// one.
#include "hostmetal/src/on_demand.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "hostmetal/src/digest.h"

namespace hostmetal {
namespace {

// A program that asks for many kernels asks for more: every so many calls of the compiler, each has
// one kernel more to make, so that some dozens of calls make all of a library and some few not much
// that nobody wants.
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
    digest.Part(job_.checked ? "checked" : "");
    return digest.Value();
  }

  Failure Complete(Kernel* kernel) override {
    // One call of the compiler at a time: it uses all cores.
    std::lock_guard<std::mutex> lock(mutex_);
    const std::string name = kernel->entry->name;
    auto found = made_.find(name);
    if (found == made_.end()) {
      if (Failure failure = Make(name)) return failure;
      found = made_.find(name);
      if (found == made_.end() || IsAbsent(found->second.second)) {
        return {kLibraryInternal, "[newComputePipelineState] the compiler made no code of '" +
                                      name + "'; HOSTMETAL_COMPILER may be of another version"};
      }
    }
    kernel->module = found->second.first;
    kernel->entry = found->second.second;
    return {};
  }

 private:
  // Compiles `name` and the next ones that have no code.
  Failure Make(const std::string& name) {
    size_t count = std::min(1 + calls_++ / kCallsPerKernel, absent_.size());
    auto at = std::find(absent_.begin(), absent_.end(), name);
    if (at != absent_.end()) std::rotate(absent_.begin(), at, absent_.end());
    CompileJob job = job_;
    job.kernels.assign(absent_.begin(), absent_.begin() + count);
    Failure failure;
    std::string bytes = CompileSource(job, &failure);
    if (failure) return failure;
    auto module = driver_->LoadData(bytes, "source.metallib", job.checked, &failure);
    if (!module) return failure;
    for (const metallib_kernel* entry : module->kernels()) made_[entry->name] = {module, entry};
    absent_.erase(absent_.begin(), absent_.begin() + count);
    return {};
  }

  Driver* const driver_;
  const CompileJob job_;
  const std::shared_ptr<Module> tables_;
  std::mutex mutex_;
  std::vector<std::string> absent_;  // nobody asked for them so far
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

}  // namespace hostmetal
