# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Ridge regression: ½ (x·w − y)² + ½ λ |w|², with a workspace for the residuals."""

from leashed cimport leashed_gradient_f
from libc.stdint cimport int64_t

cdef enum:
    FEATURES = 20
cdef float PENALTY = 1e-3


cdef api float ridge(const float* theta, const float* x, const int64_t* rows, const float* y,
                     int64_t batch, float* gradient, void* workspace,
                     void* user_data) noexcept nogil:
    cdef float* residual = <float*> workspace  # [batch]
    cdef float loss = 0
    cdef const float* row
    cdef int64_t i
    cdef int j
    for i in range(batch):
        row = x + rows[i] * FEATURES
        residual[i] = -y[i]
        for j in range(FEATURES):
            residual[i] += row[j] * theta[j]
        loss += residual[i] * residual[i] / 2
    loss /= batch
    for j in range(FEATURES):
        gradient[j] = PENALTY * theta[j]
        loss += PENALTY * theta[j] * theta[j] / 2
    for i in range(batch):
        row = x + rows[i] * FEATURES
        for j in range(FEATURES):
            gradient[j] += residual[i] * row[j] / batch
    return loss


cdef leashed_gradient_f as_leashed_calls_it = ridge  # the compiler checks the signature
