/* The contract by which native code brings a gradient of its own to leashed.
 *
 * leashed calls a function of these types from its own threads, several at once, without Python's
 * GIL. It must not throw, keep no pointer, and take no lock.
 *
 *   theta      parameters [dimension]; under Hogwild without a copy they change meanwhile
 *   x          examples, row-major; example i of the batch is at x + rows[i] * features
 *   rows       [batch], from 0
 *   y          [batch], label or target of example i: int32_t, or float for leashed_gradient_f
 *   batch      examples: from 1 to the batch size, or to 256 for evaluation if that is more
 *   gradient   [dimension], to be overwritten with the gradient of the batch's mean loss; null
 *              where only the loss is wanted, which is asked of a `loss` function alone
 *   workspace  this thread's own memory, as many bytes as were asked for, 64-byte aligned, zeroed
 *              before the first call and kept from call to call; null where none was asked for
 *   user_data  what the capsule or the LowLevelCallable carries, else null
 *
 * Returns the batch's mean loss. NaN or an infinity stops the run; so does a row's gradient that is
 * not finite, before any row has it.
 *
 * leashed_gradient_rows is for models that read rows of embedding tables. `features` are an
 * example's numbers, and may be 0. Of each feature that is ids an example has any number of
 * entries; each entry stands for a row of the feature's table, and several may for the same one.
 *
 *   offsets        [features of ids][batch + 1]; the entries of example i and feature f are from
 *                  offsets[f * (batch + 1) + i] up to offsets[f * (batch + 1) + i + 1]
 *   places         [entries]; the row of entry e is at values + places[e], its gradient at
 *                  row_gradients + places[e]
 *   weights        [entries], 1 where the data has none
 *   counts         [tables], distinct rows of each table
 *   values         those rows, table after table, each as many floats as the table's dim: a copy
 *   row_gradients  as values, 0 before the call: the gradients of the batch's mean loss are to be
 *                  added; null where gradient is
 *   logits         [batch], to be overwritten with the logit of label 1; null but for a `logits`
 *                  function, for which y, gradient and row_gradients are null, and of which nothing
 *                  that it returns is used
 */
#ifndef LEASHED_H
#define LEASHED_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef float (*leashed_gradient)(const float* theta, const float* x, const int64_t* rows,
                                  const int32_t* y, int64_t batch, float* gradient, void* workspace,
                                  void* user_data);

typedef float (*leashed_gradient_f)(const float* theta, const float* x, const int64_t* rows,
                                    const float* y, int64_t batch, float* gradient, void* workspace,
                                    void* user_data);

typedef float (*leashed_gradient_rows)(const float* theta, const float* x, const int64_t* rows,
                                       const int32_t* y, int64_t batch, const int64_t* offsets,
                                       const int64_t* places, const float* weights,
                                       const int64_t* counts, const float* values, float* gradient,
                                       float* row_gradients, float* logits, void* workspace,
                                       void* user_data);

/* Names of a PyCapsule around such a function. */
#define LEASHED_GRADIENT                                                                      \
  "float (const float *, const float *, const int64_t *, const int32_t *, int64_t, float *, " \
  "void *, void *)"
#define LEASHED_GRADIENT_F                                                                  \
  "float (const float *, const float *, const int64_t *, const float *, int64_t, float *, " \
  "void *, void *)"
#define LEASHED_GRADIENT_ROWS                                                                  \
  "float (const float *, const float *, const int64_t *, const int32_t *, int64_t, "           \
  "const int64_t *, const int64_t *, const float *, const int64_t *, const float *, float *, " \
  "float *, float *, void *, void *)"

#ifdef __cplusplus
}
#endif

#endif
