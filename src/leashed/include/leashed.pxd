# The contract of leashed.h for Cython: cythonize(..., include_path=[leashed.get_include()]).
# A function of this type that is declared `cdef api` or in a .pxd of yours is taken by
# leashed.gradients.from_cython(module, name).
from libc.stdint cimport int32_t, int64_t

ctypedef float (*leashed_gradient)(
    const float* theta, const float* x, const int64_t* rows, const int32_t* y, int64_t batch,
    float* gradient, void* workspace, void* user_data) noexcept nogil

ctypedef float (*leashed_gradient_f)(
    const float* theta, const float* x, const int64_t* rows, const float* y, int64_t batch,
    float* gradient, void* workspace, void* user_data) noexcept nogil

ctypedef float (*leashed_gradient_rows)(
    const float* theta, const float* x, const int64_t* rows, const int32_t* y, int64_t batch,
    const int64_t* offsets, const int64_t* places, const float* weights, const int64_t* counts,
    const float* values, float* gradient, float* row_gradients, float* logits, void* workspace,
    void* user_data) noexcept nogil
