// Loading of .metallib files for a GPU: the reflection is that of the code for the CPU; the PTX
// beside it is compiled by NVIDIA's driver, a kernel at a time, when a pipeline asks for it.
#include <string.h>

#include <mutex>

#include "hostmetal/src/cuda/driver.h"
#include "hostmetal/src/cuda/ptx.h"

namespace hostmetal {
namespace cuda {
namespace {

constexpr int kHopper = 90;

// 80 for "sm_80".
int Capability(const char* target) { return strncmp(target, "sm_", 3) == 0 ? atoi(target + 3) : 0; }

class GpuModule : public hostmetal::Module {
 public:
  GpuModule(std::shared_ptr<hostmetal::Module> tables, std::string name)
      : tables_(std::move(tables)), name_(std::move(name)) {}

  const std::vector<const metallib_kernel*>& kernels() const override { return tables_->kernels(); }
  const metallib_gpu_library* gpu() const override { return tables_->gpu(); }
  const std::string& name() const { return name_; }

  // The newest code that this GPU runs, of every shader file.
  Failure Load(const Gpu& gpu) {
    const metallib_gpu_library* code = tables_->gpu();
    int best = 0;
    std::string there;
    if (code) {
      for (auto* c = code->begin; c != code->end; ++c) {
        int needs = Capability(c->target);
        if (needs <= gpu.capability && needs > best) best = needs;
        if (there.find(c->target) == there.npos)
          there += (there.empty() ? "" : ", ") + std::string(c->target);
      }
    }
    if (!best) {
      return {kLibraryUnsupported, "[newLibrary] '" + name_ + "' has " +
                                       (there.empty() ? std::string("no code for GPUs")
                                                      : "code for " + there + " only") +
                                       ", and this GPU is an sm_" + std::to_string(gpu.capability) +
                                       "; compile it with 'metal --gpu=sm_80' (make metal GPU=1)"};
    }
    for (auto* c = code->begin; c != code->end; ++c) {
      const int of = Capability(c->target);
      if (of > best || (of < best && gpu.capability == best)) continue;
      (of == best ? files_ : older_)
          .push_back(std::make_unique<PtxFile>(std::string_view(c->text, c->length)));
    }
    return {};
  }

  // The kernel alone, for this GPU: that of an older one where it has instructions that only Hopper
  // has. Empty: there is none.
  std::string TextOf(const Gpu& gpu, const std::string& entry, const Kernel& kernel) const {
    for (const auto* files : {&files_, &older_}) {
      for (const auto& file : *files) {
        if (!file->Has(entry)) continue;
        std::string text = file->Extract(entry, kernel.entry->constants, kernel.constants.data(),
                                         kernel.entry->n_constants);
        if (text.find("wgmma.") == text.npos) return text;
        if (gpu.capability != kHopper) continue;
        static const char kTarget[] = ".target sm_90";
        const size_t at = text.find(kTarget);
        if (at != text.npos) text.insert(at + strlen(kTarget), "a");
        return text;
      }
    }
    return {};
  }

  // One compilation for each set of constants. Held weakly: it ends with the last pipeline.
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<void>> compiled;

 private:
  std::shared_ptr<hostmetal::Module> tables_;
  std::string name_;
  std::vector<std::unique_ptr<PtxFile>> files_, older_;
};

}  // namespace

Compiled::~Compiled() {
  gpu->Enter();
  if (module) gpu->library->ModuleUnload(module);
}

std::shared_ptr<hostmetal::Module> NewModule(const Gpu& gpu,
                                             std::shared_ptr<hostmetal::Module> tables,
                                             const std::string& name, Failure* failure) {
  auto module = std::make_shared<GpuModule>(std::move(tables), name);
  *failure = module->Load(gpu);
  if (*failure) return nullptr;
  return module;
}

Failure Compile(const Gpu& gpu, Kernel* kernel) {
  auto* module = static_cast<GpuModule*>(kernel->module.get());
  const metallib_kernel& entry = *kernel->entry;
  std::string key(entry.name);
  key.append(1, '\0');
  key.append(reinterpret_cast<const char*>(kernel->constants.data()),
             kernel->constants.size() * sizeof(metallib_constant_value));
  std::lock_guard<std::mutex> lock(module->mutex);
  std::shared_ptr<void> code = module->compiled[key].lock();
  const Library& cu = *gpu.library;
  gpu.Enter();
  std::string where = std::string("[newComputePipelineState] kernel '") + entry.name + "'";
  if (!code) {
    std::string symbol = EntryName(entry.name);
    const std::string text = module->TextOf(gpu, symbol, *kernel);
    if (text.empty()) {
      return {kLibraryInternal, where + " of '" + module->name() + "' has no code for GPUs"};
    }
    auto made = std::make_shared<Compiled>();
    made->gpu = &gpu;
    char said[8192] = "";
    int options[] = {kErrorLog, kErrorLogBytes};
    void* values[] = {said, reinterpret_cast<void*>(sizeof said)};
    Result result = cu.ModuleLoadDataEx(&made->module, text.c_str(), 2, options, values);
    if (result == kSuccess) {
      result = cu.ModuleGetFunction(&made->function, made->module, symbol.c_str());
    }
    if (result != kSuccess) {
      Failure failure = Explained(cu, where, result);
      if (said[0]) failure.message += std::string("\n") + said;
      failure.code = kLibraryInternal;
      return failure;
    }
    code = made;
    module->compiled[key] = code;
  }
  int most = 0;
  Result result =
      cu.FuncGetAttribute(&most, kMaxThreadsPerBlock, static_cast<Compiled*>(code.get())->function);
  if (result != kSuccess) return Explained(cu, where, result);
  if (uint32_t(most) < kernel->max_threads) kernel->max_threads = uint32_t(most);
  kernel->code = std::move(code);
  return {};
}

}  // namespace cuda
}  // namespace hostmetal
