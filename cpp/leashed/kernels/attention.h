// Kernels between one example's query, [dim], and the keys of its sequence, [count][dim] one after
// another.
#pragma once

#include <cstddef>

#include "leashed/base/isa.h"

namespace leashed {

struct AttentionKernels {
  // out[j] = or += v·kⱼ.
  void (*dots)(const float* v, const float* keys, std::size_t count, std::size_t dim, float* out,
               bool add);
  // out [dim] = or += Σ s[j] kⱼ.
  void (*combine)(const float* s, const float* keys, std::size_t count, std::size_t dim, float* out,
                  bool add);
  // out [count][dim] = or += s[j] v.
  void (*outer)(const float* s, const float* v, std::size_t count, std::size_t dim, float* out,
                bool add);

  // out = softmax(s); `s` may be `out`.
  void (*softmax)(const float* s, std::size_t count, float* out);
  // Given p, what softmax gave: the gradient with respect to s, p ∘ (d_out − p·d_out).
  void (*softmax_backward)(const float* p, const float* d_out, std::size_t count, float* d_s);

  // out [count][2 dim] = [k, q∘k], with row stride ld.
  void (*pairs)(const float* q, const float* keys, std::size_t count, std::size_t dim, float* out,
                std::size_t ld);
  // Given d_pairs, at the same stride: adds to d_q, and writes, or adds to, d_keys; null: not
  // wanted.
  struct PairsBackward {
    const float *d_pairs, *q, *keys;
    std::size_t ld, count, dim;
    float *d_q, *d_keys;
    bool adds_d_keys;
  };
  void (*pairs_backward)(const PairsBackward&);

  // A layer of [q, k, q − k, q∘k] by W₁ to W₄, [4 dim][n], is one of [k, q∘k] by W₂ − W₃ and W₄ and
  // of q by W₁ + W₃: these are `out`, [3 dim][n], one after another.
  void (*fold)(const float* w, std::size_t dim, std::size_t n, float* out);
  // From the gradient with respect to those to that of W, which is written or added to.
  void (*unfold)(const float* d_folded, std::size_t dim, std::size_t n, float* d_w, bool add);
};

const AttentionKernels& attention_kernels(Isa isa);

}  // namespace leashed
