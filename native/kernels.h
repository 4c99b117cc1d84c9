// What the kernels compute, and the table through which the version for this processor is called.
//
// Arrays are contiguous, row-major, and have been checked by the binding; B replicates are independent of each other.
// The numbers of a replicate are computed in one fixed order, whatever B, its place in the batch, or the threads.
#pragma once
#include <cstdint>
#include <vector>

namespace codesgc {

// A sparse matrix in compressed rows; for S of a graph (symmetric) and for features X.
template <typename T> struct Csr {
    int64_t rows = 0, cols = 0;
    std::vector<int32_t> indptr, indices;
    std::vector<T> values;
    // the transpose, and at which entry of this matrix each of its entries stands
    std::vector<int32_t> t_indptr, t_indices, t_entry;
    // Compact: every row's values are equal (binary features over their sum) and indices fit in 16 bits. Then those
    // indices and one value a row, otherwise the transpose's values.
    bool compact = false;
    std::vector<uint16_t> narrow;
    std::vector<T> row_values, t_values;
    // if square: rows and columns in an order in which neighbours are near each other, order[place] = row
    std::vector<int32_t> order, o_indptr, o_indices;
    std::vector<T> o_values;
};

// One table a scalar type and instruction set, filled by each kernel file.
template <typename T> struct Kernels {
    // previous <- 2 S current - previous (+ add, if not null): (B, N, C)
    void (*advance)(const Csr<T> &S, T *previous, const T *current, const T *add, int64_t B, int64_t C, int threads);

    // sum <- sum_k T_k(S) x diag(m_k),  dm[k, c] <- <h[:, c], (T_k(S) x)[:, c]>: x, h, sum (B, N, C), m, dm
    // (B, K+1, C). Either result may be null, and then what it alone needs (m, h), too.
    void (*filter)(const Csr<T> &S, const T *x, const T *h, const T *m, T *sum, T *dm, int64_t B, int64_t C, int64_t K,
                   int threads);

    // out <- sum_k T_k(S) (x A_k): x (B, N, Q, I), out (B, N, Q, J), a (B, K+1, I, J), or, if it comes `transposed`,
    // (B, K+1, J, I). The Q J columns of the result propagate.
    void (*synthesise)(const Csr<T> &S, const T *x, const T *a, T *out, int64_t B, int64_t Q, int64_t I, int64_t J,
                       int64_t K, bool transposed, int threads);

    // sum <- sum_k (T_k(S) v) A_k,  da_k <- (T_k(S) v)^T y over nodes and Q: v (B, N, Q, I), y, sum (B, N, Q, J), a, da
    // (B, K+1, I, J), or (B, K+1, J, I) if `transposed`. The Q I columns of v propagate. Either result may be null, and
    // then what it alone needs (a, y), too.
    void (*analyse)(const Csr<T> &S, const T *v, const T *y, const T *a, T *sum, T *da, int64_t B, int64_t Q, int64_t I,
                    int64_t J, int64_t K, bool transposed, int threads);

    // Bit e % 32 of out[b, e / 32]: whether element e stays; bits behind the last element are 0.
    void (*keep_bits)(const int64_t *keys, const int32_t *thresholds, int64_t count, uint32_t *out, int64_t B,
                      int threads);
    // out[b] = x[b] * kept * scales[b]: x, out (B, n); x_step is n, or 0 for one x for all.
    void (*dropout)(const T *x, int64_t x_step, const int64_t *keys, const int32_t *thresholds, const T *scales, T *out,
                    int64_t B, int64_t n, int threads);
    // out[b] = dropped(X) w[b] + 1 bias[b]^T and out[b] = dropped(X)^T y[b]: w (B, I, J), y (B, N, J). The mask is that of
    // X's stored values. Without keys nothing is dropped; bias may be null.
    void (*sparse_matmul)(const Csr<T> &X, const T *w, const T *bias, const int64_t *keys, const int32_t *thresholds,
                          const T *scales, T *out, int64_t B, int64_t J, int threads);
    void (*sparse_matmul_t)(const Csr<T> &X, const T *y, const int64_t *keys, const int32_t *thresholds,
                            const T *scales, T *out, int64_t B, int64_t J, int threads);
    // x w + 1 bias^T, dy w^T, x^T dy, 1^T dy: x (B, N, I), or x_step 0 for one x for all, w (B, I, J), dy (B, N, J).
    void (*matmul)(const T *x, int64_t x_step, const T *w, const T *bias, T *out, int64_t B, int64_t N, int64_t I,
                   int64_t J, int threads);
    void (*matmul_nt)(const T *dy, const T *w, T *out, int64_t B, int64_t N, int64_t I, int64_t J, int threads);
    void (*matmul_tn)(const T *x, int64_t x_step, const T *dy, T *out, int64_t B, int64_t N, int64_t I, int64_t J,
                      int threads);
    void (*sum_rows)(const T *dy, T *out, int64_t B, int64_t N, int64_t J, int threads);
    // p, g, m, v (B, n); lr, weight_decay, step (B,), the step counted from 1.
    void (*adam)(T *p, const T *g, T *m, T *v, const double *lr, const double *weight_decay, const double *step,
                 double beta1, double beta2, double eps, int64_t B, int64_t n, int threads);
    // scores, grad (B, N, J), labels (N,), nodes (B, n), losses, out (B,).
    void (*cross_entropy)(const T *scores, const int64_t *labels, const int64_t *nodes, T *losses, T *grad, int64_t B,
                          int64_t N, int64_t J, int64_t n, int threads);
    void (*correct)(const T *scores, const int64_t *labels, const int64_t *nodes, int64_t *out, int64_t B, int64_t N,
                    int64_t J, int64_t n, int threads);
};

// The best table for this processor; `name` is "avx512", "avx2" or "plain", or null for the best.
template <typename T> const Kernels<T> &kernels(const char *name = nullptr);
const char *instruction_set();

} // namespace codesgc
