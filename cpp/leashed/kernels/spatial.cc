#include "leashed/kernels/spatial.h"

#include "leashed/base/isa_table.h"
#include "leashed/base/simd.h"
#include "leashed/kernels/spatial_parts.h"

namespace leashed {

namespace parts = LEASHED_SPATIAL;

extern const SpatialKernels LEASHED_ISA_NAME(spatial_kernels);
const SpatialKernels LEASHED_ISA_NAME(spatial_kernels) = {
    .lanes = kLanes,
    .gather = parts::gather,
    .conv_forward = parts::conv_forward,
    .conv_relu_pool_forward = parts::conv_relu_pool_forward,
    .conv_backward_parameters = parts::conv_backward_parameters,
    .conv_backward_input = parts::conv_backward_input,
    .conv_scratch = parts::conv_scratch,
    .conv_relu_pool_backward_parameters = parts::conv_relu_pool_backward_parameters,
    .conv_relu_pool_backward_input = parts::conv_relu_pool_backward_input,
    .conv_relu_pool_scratch = parts::conv_relu_pool_scratch,
    .pool_forward = parts::pool_forward,
    .pool_backward = parts::pool_backward,
};

}  // namespace leashed
