// Runs the shader compiler for newLibraryWithSource.
#include "hostmetal/src/compiler.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

extern char** environ;

namespace hostmetal {
namespace {

bool Executable(const std::string& path) { return access(path.c_str(), X_OK) == 0; }

// Folder of libhostmetal.so: the metal_ops package.
std::string PackageDirectory() {
  Dl_info info;
  if (!dladdr(reinterpret_cast<const void*>(&CompileSource), &info) || !info.dli_fname) return "";
  char* real = realpath(info.dli_fname, nullptr);
  if (!real) return "";
  std::string path(real);
  free(real);
  return path.substr(0, path.rfind('/'));
}

// The interpreter whose packages the compiler needs: that of the environment that holds the package
// (site-packages/metal_ops or <checkout>/python/metal_ops), else the one we run in, which may be
// any, else the PATH's.
std::string FindPython(const std::string& package) {
  if (const char* wanted = getenv("HOSTMETAL_PYTHON")) return wanted;
  bool installed = package.find("/site-packages/") != std::string::npos;
  std::string python =
      package + (installed ? "/../../../../bin/python3" : "/../../.venv/bin/python3");
  if (Executable(python)) return python;
  auto full_path =
      reinterpret_cast<const wchar_t* (*)()>(dlsym(RTLD_DEFAULT, "Py_GetProgramFullPath"));
  if (full_path) {
    if (const wchar_t* wide = full_path()) {
      char narrow[4096];
      size_t n = wcstombs(narrow, wide, sizeof narrow);
      if (n != size_t(-1) && n < sizeof narrow && Executable(narrow)) return narrow;
    }
  }
  return "python3";
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// A folder that is gone with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    const char* base = getenv("TMPDIR");
    path_ = std::string(base && *base ? base : "/tmp") + "/hostmetal-XXXXXX";
    if (!mkdtemp(&path_[0])) path_.clear();
  }
  ~TemporaryDirectory() {
    if (path_.empty()) return;
    for (const char* name : {"/program_source.metal", "/program.metallib", "/messages"}) {
      unlink((path_ + name).c_str());
    }
    rmdir(path_.c_str());
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

int Spawn(const std::vector<std::string>& arguments, const std::string& input,
          const std::string& output) {
  std::vector<char*> argv;
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, input.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t child;
  int error = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error) {
    errno = error;
    return -1;
  }
  int status;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return -1;
  }
  return status;
}

// As standard input: the name of a file is part of the compiler's cache key.
std::vector<std::string> SourceArguments(const CompileJob& job, const std::string& output) {
  std::vector<std::string> arguments = {"-", "-o", output};
  for (const auto& macro : job.macros) arguments.push_back("-D" + macro.first + "=" + macro.second);
  if (!job.standard.empty()) arguments.push_back("-std=" + job.standard);
  if (!job.math.empty()) arguments.push_back(job.math);
  if (job.logging) arguments.push_back("-fmetal-enable-logging");
  // Code that is compiled here runs here, and METAL_OPS_MARCH is the compiler's to read.
  if (job.wide && !getenv("METAL_OPS_MARCH")) arguments.push_back("-march=x86-64-v4");
  for (std::string& argument : AskedByEnvironment()) arguments.push_back(std::move(argument));
  const bool checked = job.checked && job.gpu.empty();  // on GPUs there are none
  arguments.push_back(!checked          ? "-fno-shader-validation"
                      : ChecksKernels() ? "-fshader-checks"
                                        : "-fshader-validation-only");
  if (!job.gpu.empty()) {
    arguments.push_back("--gpu=" + job.gpu);
  } else if (job.kernels.empty()) {
    arguments.push_back("--on-demand");
  }
  for (const std::string& name : job.kernels) arguments.push_back("--kernel=" + name);
  return arguments;
}

std::vector<std::string> DeferredArguments(const CompileJob& job, const std::string& output) {
  const char* kind = !job.checked      ? (job.wide ? "widest" : "plain")
                     : ChecksKernels() ? "checks"
                                       : "checked";
  std::vector<std::string> arguments = {"--from-deferred", output, kind};
  arguments.insert(arguments.end(), job.kernels.begin(), job.kernels.end());
  return arguments;
}

}  // namespace

std::vector<std::string> AskedByEnvironment() {
  std::vector<std::string> arguments;
  const char* debug = getenv("HOSTMETAL_DEBUG");
  if (debug && *debug && strcmp(debug, "0")) arguments.push_back("-g");
  const char* coverage = getenv("HOSTMETAL_COVERAGE");
  if (coverage && *coverage) arguments.push_back("--coverage");
  return arguments;
}

std::string CompileSource(const CompileJob& job, Failure* failure) {
  auto fail = [&](int code, std::string message) {
    *failure = {code, std::move(message)};
    return std::string();
  };
  std::string package = PackageDirectory();
  const char* wanted = getenv("HOSTMETAL_COMPILER");
  std::string compiler = wanted ? wanted : package + "/metal";
  struct stat info;
  if (stat(compiler.c_str(), &info) != 0) {
    return fail(kLibraryInternal, "[newLibraryWithSource] no shader compiler at '" + compiler +
                                      "'; install the metal_ops package or set HOSTMETAL_COMPILER");
  }
  TemporaryDirectory folder;
  if (folder.path().empty()) {
    return fail(kLibraryInternal,
                std::string("[newLibraryWithSource] no temporary folder: ") + strerror(errno));
  }
  std::string input = folder.path() + "/program_source.metal";
  std::string output = folder.path() + "/program.metallib";
  std::string messages = folder.path() + "/messages";
  std::ofstream file(input, std::ios::binary);
  file << job.source;
  file.close();
  if (!file) {
    return fail(kLibraryInternal, "[newLibraryWithSource] cannot write to '" + folder.path() +
                                      "': " + strerror(errno) + "; set TMPDIR");
  }
  std::vector<std::string> arguments =
      job.deferred ? DeferredArguments(job, output) : SourceArguments(job, output);
  arguments.insert(arguments.begin(), {FindPython(package), compiler});
  int status = Spawn(arguments, input, messages);
  if (status == -1) {
    return fail(kLibraryInternal, "[newLibraryWithSource] cannot run '" + arguments[0] +
                                      "': " + strerror(errno) + "; set HOSTMETAL_PYTHON");
  }
  std::string said = ReadFile(messages);
  if (status != 0) {
    // As Apple's compiler calls it.
    const std::string name = "<stdin>";
    for (size_t at; (at = said.find(name)) != std::string::npos;) {
      said.replace(at, name.size(), "program_source");
    }
    return fail(kLibraryCompileFailure,
                said.empty() ? "[newLibraryWithSource] the compiler failed without a word" : said);
  }
  std::string bytes = ReadFile(output);
  if (bytes.empty()) {
    return fail(kLibraryInternal, "[newLibraryWithSource] the compiler wrote nothing: " + said);
  }
  return bytes;
}

}  // namespace hostmetal
