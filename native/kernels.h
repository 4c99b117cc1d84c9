// What the kernels compute, and the table through which the version for this processor is called.
//
// Arrays are contiguous, row-major, and have been checked by the binding; B replicates are independent of each other.
// The numbers of a replicate are computed in one fixed order, whatever B, its place in the batch, or the threads.
#pragma once
#include <cstdint>
#include <vector>

namespace codesgc {

constexpr int64_t BAND = 4096; // rows of 128 bytes, together half an L2

// A sparse matrix in compressed rows; for S of a graph (symmetric) and for features X.
template <typename T> struct Csr {
    int64_t rows = 0, cols = 0;
    int64_t bands() const { return rows > BAND ? (rows + BAND - 1) / BAND : 1; }
    std::vector<int32_t> indptr, indices;
    std::vector<T> values;
    // the transpose, in bands of BAND rows of this matrix one behind the other (t_indptr has bands * cols + 1 entries), and
    // at which entry of this matrix each of its entries stands
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

// A dropout of a tensor (B, n): the masks of the keys (B,) at thresholds (B,), which are rates in units of 2^-16; kept
// elements are multiplied by 1 / (1 - rate). Without keys nothing is dropped.
struct Drop {
    const int64_t *keys = nullptr;
    const int32_t *thresholds = nullptr;

    explicit operator bool() const { return keys; }
    template <typename T> T scale(int64_t b) const {
        return !keys ? T(1) : thresholds[b] > 65535 ? T(0) : T(65536.0 / (65536 - thresholds[b]));
    }
};

// The core of Tucker: Z = dropped(sum_k T_k(S) U_k), U_k[n, q] = sum_r a_kr H[n, q, r], H = dropped(t G + 1 bias^T).
template <typename T> struct Core {
    const T *t; // (B, N, P), or t_step 0 for one t for all
    int64_t t_step;
    const T *G, *bias, *a; // (B, P, Q, R), (B, Q, R) or null, (B, K+1, R)
    int64_t B, P, Q, R, K;
    Drop H_drop, Z_drop; // of elements (n, q, r) and (n, q)
};

// One table a scalar type and instruction set, filled by each kernel file.
template <typename T> struct Kernels {
    // previous <- 2 S current - previous (+ add, if not null): (B, N, C)
    void (*advance)(const Csr<T> &S, T *previous, const T *current, const T *add, int64_t B, int64_t C, int threads);

    // sum <- sum_k T_k(S) x diag(m_k),  dm[k, c] <- <h[:, c], (T_k(S) x)[:, c]>: x, h, sum (B, N, C), m, dm
    // (B, K+1, C). Either result may be null, and then what it alone needs (m, h), too. The first drop is that of x,
    // the second that of sum.
    void (*filter)(const Csr<T> &S, const T *x, const T *h, const T *m, T *sum, T *dm, int64_t B, int64_t C, int64_t K,
                   Drop x_drop, Drop sum_drop, int threads);

    // out <- sum_k T_k(S) (x A_k): x (B, N, Q, I), out (B, N, Q, J), a (B, K+1, I, J), or, if it comes `transposed`,
    // (B, K+1, J, I). The Q J columns of the result propagate.
    void (*synthesise)(const Csr<T> &S, const T *x, const T *a, T *out, int64_t B, int64_t Q, int64_t I, int64_t J,
                       int64_t K, bool transposed, int threads);

    // sum <- sum_k (T_k(S) v) A_k,  da_k <- (T_k(S) v)^T y over nodes and Q: v (B, N, Q, I), y, sum (B, N, Q, J), a, da
    // (B, K+1, I, J), or (B, K+1, J, I) if `transposed`. The Q I columns of v propagate. Either result may be null, and
    // then what it alone needs (a, y), too.
    void (*analyse)(const Csr<T> &S, const T *v, const T *y, const T *a, T *sum, T *da, int64_t B, int64_t Q, int64_t I,
                    int64_t J, int64_t K, bool transposed, int threads);

    // z <- Z (B, N, Q); and its gradients from dz, shaped as what they belong to, but dt (B, N, P) always: each may be
    // null. H is never stored: both recompute it, some nodes at a time.
    void (*core)(const Csr<T> &S, const Core<T> &of, T *z, int threads);
    void (*core_backward)(const Csr<T> &S, const Core<T> &of, const T *dz, T *dt, T *dG, T *dbias, T *da, int threads);

    // Bit e % 32 of out[b, e / 32]: whether element e stays; bits behind the last element are 0.
    void (*keep_bits)(const int64_t *keys, const int32_t *thresholds, int64_t count, uint32_t *out, int64_t B,
                      int threads);
    // out[b] = dropped(x[b]): x, out (B, n); x_step is n, or 0 for one x for all.
    void (*dropout)(const T *x, int64_t x_step, Drop drop, T *out, int64_t B, int64_t n, int threads);
    // out[b] = dropped(dropped(X) w[b] + 1 bias[b]^T) and, of y = dropped(dy), out[b] = dropped(X)^T y[b] with
    // sums[b] = 1^T y[b]: w (B, I, J), dy (B, N, J). The first drop is that of X's stored values, the second that of the
    // dense tensor; bias and sums may be null.
    void (*sparse_matmul)(const Csr<T> &X, const T *w, const T *bias, Drop x_drop, Drop drop, T *out, int64_t B,
                          int64_t J, int threads);
    void (*sparse_matmul_t)(const Csr<T> &X, const T *dy, Drop x_drop, Drop drop, T *out, T *sums, int64_t B, int64_t J,
                            int threads);
    // dropped(x w + 1 bias^T): x (B, N, I), or x_step 0 for one x for all, w (B, I, J).
    void (*matmul)(const T *x, int64_t x_step, const T *w, const T *bias, Drop drop, T *out, int64_t B, int64_t N,
                   int64_t I, int64_t J, int threads);
    // Of y = dropped(dy), dy (B, N, J): dx = y w^T, dw = x^T y, sums = 1^T y in one pass over dy; each may be null.
    void (*matmul_backward)(const T *x, int64_t x_step, const T *w, const T *dy, Drop drop, T *dx, T *dw, T *sums,
                            int64_t B, int64_t N, int64_t I, int64_t J, int threads);
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
