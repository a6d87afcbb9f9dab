// The kernels of spatial.h at one instruction-set level, each in a source of its own or with those
// that share its loops, so that they are compiled beside each other; spatial.cc has their table.
#pragma once

#include "leashed/base/isa_table.h"
#include "leashed/kernels/spatial.h"

// A namespace for each level.
#define LEASHED_SPATIAL LEASHED_ISA_NAME(spatial)

namespace leashed::LEASHED_SPATIAL {

void gather(const float* const* rows, std::size_t count, std::size_t features, float* out);

void conv_forward(const ConvShape& s, const float* w, const float* b, const float* in, float* out,
                  bool rectified);
void conv_relu_pool_forward(const ConvShape& s, const PoolShape& p, const float* w, const float* b,
                            const float* in, float* out, std::uint8_t* position);

void conv_backward_parameters(const ConvShape& s, const float* in, const float* d_out, float* dw,
                              float* db, float* scratch);
void conv_backward_input(const ConvShape& s, const float* w, const float* d_out, float* d_in);
std::size_t conv_scratch(const ConvShape& s);

void conv_relu_pool_backward_parameters(const ConvShape& s, const PoolShape& p, const float* in,
                                        const float* d_out, const std::uint8_t* position, float* dw,
                                        float* db, float* scratch);
void conv_relu_pool_backward_input(const ConvShape& s, const PoolShape& p, const float* w,
                                   const float* d_out, const std::uint8_t* position, float* d_in,
                                   float* scratch);
std::size_t conv_relu_pool_scratch(const ConvShape& s, const PoolShape& p);

void pool_forward(const PoolShape& s, const float* in, float* out, std::uint8_t* position);
void pool_backward(const PoolShape& s, const float* d_out, const std::uint8_t* position,
                   float* d_in);

}  // namespace leashed::LEASHED_SPATIAL
