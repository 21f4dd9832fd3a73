// The part of ONNX Runtime's C ABI that pilotfish uses; the wheels ship no headers. OrtApi is a table of function
// pointers that only ever grows, so a function is its position in the table and its signature. Knows nothing about
// pilotfish. Call one as ort_abi::CreateCustomOpDomain(api, "name", &domain).
#pragma once

#include <cstddef>
#include <cstdint>

struct OrtAllocator;
struct OrtCUDAProviderOptionsV2;
struct OrtCustomOpDomain;
struct OrtEnv;
struct OrtIoBinding;
struct OrtKernelContext;
struct OrtKernelInfo;
struct OrtMemoryInfo;
struct OrtRunOptions;
struct OrtSession;
struct OrtSessionOptions;
struct OrtShapeInferContext;
struct OrtStatus;  // nullptr means success
struct OrtTensorTypeAndShapeInfo;
struct OrtThreadingOptions;
struct OrtTypeInfo;
struct OrtValue;

struct OrtApi {
  void (*functions[1])();  // as many as the version asked for has
};

struct OrtApiBase {
  const OrtApi* (*GetApi)(uint32_t version);  // nullptr: this ONNX Runtime is older than `version`
  const char* (*GetVersionString)();
};

inline constexpr uint32_t kOrtApiVersion = 22;  // served by ONNX Runtime 1.22 and later

enum OrtErrorCode { ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2 };

enum OrtLoggingLevel {
  ORT_LOGGING_LEVEL_VERBOSE = 0,
  ORT_LOGGING_LEVEL_INFO = 1,
  ORT_LOGGING_LEVEL_WARNING = 2,
  ORT_LOGGING_LEVEL_ERROR = 3,
  ORT_LOGGING_LEVEL_FATAL = 4
};

enum GraphOptimizationLevel { ORT_DISABLE_ALL = 0, ORT_ENABLE_BASIC = 1, ORT_ENABLE_EXTENDED = 2, ORT_ENABLE_ALL = 99 };

enum ExecutionMode { ORT_SEQUENTIAL = 0, ORT_PARALLEL = 1 };

enum OrtAllocatorType { OrtInvalidAllocator = -1, OrtDeviceAllocator = 0, OrtArenaAllocator = 1 };

enum OrtMemType { OrtMemTypeCPUInput = -2, OrtMemTypeCPUOutput = -1, OrtMemTypeDefault = 0 };

enum ONNXTensorElementDataType {
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED = 0,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT = 1,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8 = 2,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32 = 6,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16 = 10,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64 = 13
};

enum OrtCustomOpInputOutputCharacteristic {
  INPUT_OUTPUT_REQUIRED = 0,
  INPUT_OUTPUT_OPTIONAL = 1,
  INPUT_OUTPUT_VARIADIC = 2
};

// ONNX Runtime keeps the pointer to a custom operator, so it must outlive every session that uses it.
struct OrtCustomOp {
  uint32_t version;
  void* (*CreateKernel)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*);
  const char* (*GetName)(const OrtCustomOp*);
  const char* (*GetExecutionProviderType)(const OrtCustomOp*);  // nullptr: CPU
  ONNXTensorElementDataType (*GetInputType)(const OrtCustomOp*, size_t index);
  size_t (*GetInputTypeCount)(const OrtCustomOp*);
  ONNXTensorElementDataType (*GetOutputType)(const OrtCustomOp*, size_t index);
  size_t (*GetOutputTypeCount)(const OrtCustomOp*);
  void (*KernelCompute)(void* kernel, OrtKernelContext*);
  void (*KernelDestroy)(void* kernel);
  OrtCustomOpInputOutputCharacteristic (*GetInputCharacteristic)(const OrtCustomOp*, size_t index);
  OrtCustomOpInputOutputCharacteristic (*GetOutputCharacteristic)(const OrtCustomOp*, size_t index);
  OrtMemType (*GetInputMemoryType)(const OrtCustomOp*, size_t index);
  int (*GetVariadicInputMinArity)(const OrtCustomOp*);
  int (*GetVariadicInputHomogeneity)(const OrtCustomOp*);
  int (*GetVariadicOutputMinArity)(const OrtCustomOp*);
  int (*GetVariadicOutputHomogeneity)(const OrtCustomOp*);
  OrtStatus* (*CreateKernelV2)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*, void** kernel);
  OrtStatus* (*KernelComputeV2)(void* kernel, OrtKernelContext*);
  OrtStatus* (*InferOutputShapeFn)(const OrtCustomOp*, OrtShapeInferContext*);
  int (*GetStartVersion)(const OrtCustomOp*);
  int (*GetEndVersion)(const OrtCustomOp*);
  size_t (*GetMayInplace)(int** input_index, int** output_index);
  void (*ReleaseMayInplace)(int* input_index, int* output_index);
  size_t (*GetAliasMap)(int** input_index, int** output_index);
  void (*ReleaseAliasMap)(int* input_index, int* output_index);
};

namespace ort_abi {

// One entry of the table: its position and its signature.
template <size_t kSlot, typename Signature>
struct Function;

template <size_t kSlot, typename Result, typename... Arguments>
struct Function<kSlot, Result(Arguments...)> {
  Result operator()(const OrtApi* api, Arguments... arguments) const {
    const auto table = static_cast<void (*const*)()>(api->functions);
    return reinterpret_cast<Result (*)(Arguments...)>(table[kSlot])(arguments...);
  }
};

template <size_t kSlot, typename Object>
using Release = Function<kSlot, void(Object*)>;

using Names = const char* const*;
using ElementType = ONNXTensorElementDataType;
using ShapeInfo = OrtTensorTypeAndShapeInfo;

// Status and environment
inline constexpr Function<0, OrtStatus*(OrtErrorCode, const char* message)> CreateStatus;
inline constexpr Function<2, const char*(const OrtStatus*)> GetErrorMessage;
inline constexpr Function<6, OrtStatus*(const OrtEnv*)> DisableTelemetryEvents;

// One thread pool for all sessions of an environment
inline constexpr Function<119, OrtStatus*(OrtLoggingLevel, const char* log_id, const OrtThreadingOptions*, OrtEnv**)>
    CreateEnvWithGlobalThreadPools;
inline constexpr Function<120, OrtStatus*(OrtSessionOptions*)> DisablePerSessionThreads;
inline constexpr Function<121, OrtStatus*(OrtThreadingOptions**)> CreateThreadingOptions;
inline constexpr Function<147, OrtStatus*(OrtThreadingOptions*, int num_threads)> SetGlobalIntraOpNumThreads;
inline constexpr Function<148, OrtStatus*(OrtThreadingOptions*, int num_threads)> SetGlobalInterOpNumThreads;

// Sessions
inline constexpr Function<8, OrtStatus*(const OrtEnv*, const void* model, size_t num_bytes, const OrtSessionOptions*,
                                        OrtSession**)>
    CreateSessionFromArray;
inline constexpr Function<30, OrtStatus*(const OrtSession*, size_t*)> SessionGetInputCount;
inline constexpr Function<31, OrtStatus*(const OrtSession*, size_t*)> SessionGetOutputCount;
inline constexpr Function<32, OrtStatus*(const OrtSession*, size_t*)> SessionGetOverridableInitializerCount;
inline constexpr Function<33, OrtStatus*(const OrtSession*, size_t index, OrtTypeInfo**)> SessionGetInputTypeInfo;
inline constexpr Function<34, OrtStatus*(const OrtSession*, size_t index, OrtTypeInfo**)> SessionGetOutputTypeInfo;
inline constexpr Function<35, OrtStatus*(const OrtSession*, size_t index, OrtTypeInfo**)>
    SessionGetOverridableInitializerTypeInfo;
inline constexpr Function<36, OrtStatus*(const OrtSession*, size_t index, OrtAllocator*, char** name)>
    SessionGetInputName;
inline constexpr Function<37, OrtStatus*(const OrtSession*, size_t index, OrtAllocator*, char** name)>
    SessionGetOutputName;
inline constexpr Function<38, OrtStatus*(const OrtSession*, size_t index, OrtAllocator*, char** name)>
    SessionGetOverridableInitializerName;
inline constexpr Function<133, OrtStatus*(OrtSession*, const OrtRunOptions*, const OrtIoBinding*)> RunWithBinding;

// Session options
inline constexpr Function<10, OrtStatus*(OrtSessionOptions**)> CreateSessionOptions;
inline constexpr Function<13, OrtStatus*(OrtSessionOptions*, ExecutionMode)> SetSessionExecutionMode;
inline constexpr Function<17, OrtStatus*(OrtSessionOptions*)> DisableMemPattern;
inline constexpr Function<23, OrtStatus*(OrtSessionOptions*, GraphOptimizationLevel)> SetSessionGraphOptimizationLevel;
inline constexpr Function<130, OrtStatus*(OrtSessionOptions*, const char* key, const char* value)>
    AddSessionConfigEntry;
inline constexpr Function<150, OrtStatus*(OrtSessionOptions*, const char* name, const OrtValue*)> AddInitializer;

// The CUDA execution provider
inline constexpr Function<204, OrtStatus*(OrtSessionOptions*, const OrtCUDAProviderOptionsV2*)>
    SessionOptionsAppendExecutionProvider_CUDA_V2;
inline constexpr Function<205, OrtStatus*(OrtCUDAProviderOptionsV2**)> CreateCUDAProviderOptions;
inline constexpr Function<206, OrtStatus*(OrtCUDAProviderOptionsV2*, Names keys, Names values, size_t num_keys)>
    UpdateCUDAProviderOptions;
inline constexpr Function<263, OrtStatus*(OrtCUDAProviderOptionsV2*, const char* key, void* value)>
    UpdateCUDAProviderOptionsWithValue;

// Run options
inline constexpr Function<39, OrtStatus*(OrtRunOptions**)> CreateRunOptions;
inline constexpr Function<165, OrtStatus*(OrtRunOptions*, const char* key, const char* value)> AddRunConfigEntry;

// Custom operators
inline constexpr Function<26, OrtStatus*(const char* domain, OrtCustomOpDomain**)> CreateCustomOpDomain;
inline constexpr Function<27, OrtStatus*(OrtCustomOpDomain*, const OrtCustomOp*)> CustomOpDomain_Add;
inline constexpr Function<28, OrtStatus*(OrtSessionOptions*, OrtCustomOpDomain*)> AddCustomOpDomain;

// Memory and tensors
inline constexpr Function<49, OrtStatus*(const OrtMemoryInfo*, void* data, size_t num_bytes, const int64_t* shape,
                                         size_t rank, ElementType, OrtValue**)>
    CreateTensorWithDataAsOrtValue;
inline constexpr Function<51, OrtStatus*(OrtValue*, void**)> GetTensorMutableData;
inline constexpr Function<55, OrtStatus*(const OrtTypeInfo*, const ShapeInfo**)> CastTypeInfoToTensorInfo;
inline constexpr Function<60, OrtStatus*(const ShapeInfo*, ElementType*)> GetTensorElementType;
inline constexpr Function<61, OrtStatus*(const ShapeInfo*, size_t* rank)> GetDimensionsCount;
inline constexpr Function<62, OrtStatus*(const ShapeInfo*, int64_t* dims, size_t rank)> GetDimensions;
inline constexpr Function<65, OrtStatus*(const OrtValue*, ShapeInfo**)> GetTensorTypeAndShape;
inline constexpr Function<68, OrtStatus*(const char* name, OrtAllocatorType, int id, OrtMemType, OrtMemoryInfo**)>
    CreateMemoryInfo;
inline constexpr Function<69, OrtStatus*(OrtAllocatorType, OrtMemType, OrtMemoryInfo**)> CreateCpuMemoryInfo;
inline constexpr Function<76, OrtStatus*(OrtAllocator*, void*)> AllocatorFree;
inline constexpr Function<78, OrtStatus*(OrtAllocator**)> GetAllocatorWithDefaultOptions;

// IO binding
inline constexpr Function<134, OrtStatus*(OrtSession*, OrtIoBinding**)> CreateIoBinding;
inline constexpr Function<136, OrtStatus*(OrtIoBinding*, const char* name, const OrtValue*)> BindInput;
inline constexpr Function<137, OrtStatus*(OrtIoBinding*, const char* name, const OrtValue*)> BindOutput;

// Inside a custom operator
inline constexpr Function<85, OrtStatus*(const OrtKernelInfo*, const char* name, float*)> KernelInfoGetAttribute_float;
inline constexpr Function<86, OrtStatus*(const OrtKernelInfo*, const char* name, int64_t*)>
    KernelInfoGetAttribute_int64;
inline constexpr Function<87, OrtStatus*(const OrtKernelInfo*, const char* name, char*, size_t*)>
    KernelInfoGetAttribute_string;
inline constexpr Function<88, OrtStatus*(const OrtKernelContext*, size_t*)> KernelContext_GetInputCount;
inline constexpr Function<90, OrtStatus*(const OrtKernelContext*, size_t index, const OrtValue**)>
    KernelContext_GetInput;
inline constexpr Function<91, OrtStatus*(OrtKernelContext*, size_t index, const int64_t* dims, size_t rank, OrtValue**)>
    KernelContext_GetOutput;
inline constexpr Function<163, OrtStatus*(const OrtKernelInfo*, const char* name, int64_t*, size_t*)>
    KernelInfoGetAttributeArray_int64;
inline constexpr Function<193, OrtStatus*(const OrtKernelContext*, void** stream)> KernelContext_GetGPUComputeStream;
inline constexpr Function<230, OrtStatus*(const OrtKernelInfo*, size_t*)> KernelInfo_GetInputCount;
inline constexpr Function<231, OrtStatus*(const OrtKernelInfo*, size_t*)> KernelInfo_GetOutputCount;
inline constexpr Function<232, OrtStatus*(const OrtKernelInfo*, size_t index, char*, size_t*)> KernelInfo_GetInputName;
inline constexpr Function<233, OrtStatus*(const OrtKernelInfo*, size_t index, char*, size_t*)> KernelInfo_GetOutputName;
inline constexpr Function<249, OrtStatus*(const OrtKernelInfo*, size_t index, int* is_constant, const OrtValue**)>
    KernelInfoGetConstantInput_tensor;
// num_batch 0: one call a unit, balanced by the pool.
inline constexpr Function<274, OrtStatus*(const OrtKernelContext*, void (*)(void*, size_t), size_t total,
                                          size_t num_batch, void* data)>
    KernelContext_ParallelFor;

// Owners' other halves
inline constexpr Release<92, OrtEnv> ReleaseEnv;
inline constexpr Release<93, OrtStatus> ReleaseStatus;
inline constexpr Release<94, OrtMemoryInfo> ReleaseMemoryInfo;
inline constexpr Release<95, OrtSession> ReleaseSession;
inline constexpr Release<96, OrtValue> ReleaseValue;
inline constexpr Release<97, OrtRunOptions> ReleaseRunOptions;
inline constexpr Release<98, OrtTypeInfo> ReleaseTypeInfo;
inline constexpr Release<99, ShapeInfo> ReleaseTensorTypeAndShapeInfo;
inline constexpr Release<100, OrtSessionOptions> ReleaseSessionOptions;
inline constexpr Release<101, OrtCustomOpDomain> ReleaseCustomOpDomain;
inline constexpr Release<122, OrtThreadingOptions> ReleaseThreadingOptions;
inline constexpr Release<208, OrtCUDAProviderOptionsV2> ReleaseCUDAProviderOptions;
inline constexpr Release<135, OrtIoBinding> ReleaseIoBinding;

}  // namespace ort_abi
