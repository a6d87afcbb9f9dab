// See spatial.h for what the kernels do. Everything here but the table has internal linkage.
#include "leashed/model/kernels/spatial.h"

#include "leashed/model/kernels/spatial_backward.h"
#include "leashed/model/kernels/spatial_correlate.h"
#include "leashed/model/kernels/spatial_forward.h"
#include "leashed/model/kernels/spatial_pool.h"
#include "leashed/model/kernels/spatial_pooled_backward.h"
#include "leashed/model/kernels/spatial_transpose.h"

#define LEASHED_PASTE_(a, b) a##b
#define LEASHED_PASTE(a, b) LEASHED_PASTE_(a, b)
#define LEASHED_TABLE LEASHED_PASTE(spatial_kernels_, LEASHED_ISA)

namespace leashed {

extern const SpatialKernels LEASHED_TABLE;
const SpatialKernels LEASHED_TABLE = {
    .lanes = kLanes,
    .gather = gather,
    .conv_forward = conv_forward,
    .conv_relu_pool_forward = conv_relu_pool_forward,
    .conv_backward_parameters = conv_backward_parameters,
    .conv_backward_input = conv_backward_input,
    .conv_scratch = conv_scratch,
    .conv_relu_pool_backward_parameters = conv_relu_pool_backward_parameters,
    .conv_relu_pool_backward_input = conv_relu_pool_backward_input,
    .conv_relu_pool_scratch = conv_relu_pool_scratch,
    .pool_forward = pool_forward,
    .pool_backward = pool_backward,
};

}  // namespace leashed
