// Stands in for the CUDA libraries that torch's Python module is linked with: two gigabytes, of no use on a CPU.
// This much is used when the module is loaded; setup.sh adds the other functions.
#define TYPE(name) struct name { virtual void stub(); }; void name::stub() {}

namespace torch::cuda::CUDAPluggableAllocator { TYPE(CUDAPluggableAllocator) }
namespace torch::inductor { TYPE(AOTIModelContainerRunnerCuda) }
namespace torch::jit::tensorexpr { TYPE(CudaCodeGen) }
namespace c10d {
TYPE(ProcessGroupNCCL)
bool (*&get_gil_checker())() {
  static bool (*checker)();
  return checker;
}
}
