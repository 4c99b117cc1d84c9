#include "isa.h"

namespace codesgc::CODESGC_ISA {

// The update of training/adam.py, in place: g = dL/dp + wd p,  m <- m + (1 - b1) (g - m),  v <- b2 v + (1 - b2) g^2,
// p <- p - lr m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)
template <typename T>
static void adam(T *p, const T *g, T *m, T *v, const double *lr, const double *weight_decay, const double *step,
                 double beta1, double beta2, double eps, int64_t B, int64_t n, int threads) {
    constexpr int64_t BLOCK = 1 << 14;
    const int64_t blocks = (n + BLOCK - 1) / BLOCK;
    parallel_for(B * blocks, threads, [&](int64_t task) {
        const int64_t b = task / blocks, first = b * n + task % blocks * BLOCK, count = std::min(BLOCK, (b + 1) * n - first);
        const T decay = T(weight_decay[b]), rate = T(lr[b] / (1 - std::pow(beta1, step[b])));
        const T second = T(1 - std::pow(beta2, step[b])), one_b1 = T(1 - beta1), b2 = T(beta2), one_b2 = T(1 - beta2);
        const T small = T(eps);
        T *__restrict__ pb = p + first, *__restrict__ mb = m + first, *__restrict__ vb = v + first;
        const T *__restrict__ gb = g + first;
        for (int64_t e = 0; e < count; ++e) {
            const T grad = gb[e] + decay * pb[e];
            mb[e] += one_b1 * (grad - mb[e]);
            vb[e] = b2 * vb[e] + one_b2 * grad * grad;
            pb[e] -= rate * mb[e] / (std::sqrt(vb[e] / second) + small);
        }
    });
}

void register_adam(Kernels<float> &f, Kernels<double> &d) {
    f.adam = adam<float>;
    d.adam = adam<double>;
}

} // namespace codesgc::CODESGC_ISA
