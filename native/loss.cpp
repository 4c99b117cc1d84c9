#include "isa.h"

#include <type_traits>

namespace codesgc::CODESGC_ISA {

// exp(x) for x <= 0, within about 2 units in the last place: 2^k times the Taylor polynomial of exp(r) for |r| <= ln 2 / 2.
// Below `LOWEST`, where the result would be subnormal, 0. NaN stays NaN.
template <typename T> static inline Vector<T> exp_negative(Vector<T> x) {
    constexpr bool FLOAT = sizeof(T) == 4;
    typedef std::conditional_t<FLOAT, uint32_t, uint64_t> Bit;
    typedef Bit Bits __attribute__((vector_size(REGISTER)));
    constexpr T LOWEST = FLOAT ? -87 : -708, LOG2E = T(1.4426950408889634074);
    constexpr T ROUND = FLOAT ? T(0x1.8p23) : T(0x1.8p52); // adding it leaves the whole part, in the low bits
    constexpr T HIGH = FLOAT ? T(0x1.63p-1) : T(0x1.62e42feep-1); // ln 2 = HIGH + LOW, and k HIGH is exact
    constexpr T LOW = FLOAT ? T(-2.12194440054690583e-4) : T(1.90821492927058770e-10);
    constexpr int TERMS = FLOAT ? 7 : 13, MANTISSA = FLOAT ? 23 : 52;
    const Vector<T> shifted = (x < LOWEST ? splat(LOWEST) : x) * LOG2E + ROUND, k = shifted - ROUND;
    const Vector<T> r = (x - k * HIGH) - k * LOW;
    double factorial = 1;
    for (int i = 2; i <= TERMS; ++i)
        factorial *= i;
    Vector<T> sum = splat(T(1 / factorial));
    for (int i = TERMS; i > 0; --i) {
        factorial /= i;
        sum = sum * r + T(1 / factorial);
    }
    const Vector<T> power = Vector<T>((Bits(shifted) << MANTISSA) + Bits(splat(T(1)))); // 2^k, from k's low bits
    return x < LOWEST ? Vector<T>{} : sum * power;
}

// losses[b] = mean over nodes[b] of -log softmax(scores[b, node])[labels[node]]; grad[b]: its gradient. The nodes are
// taken some at a time, so that the exponentials run over whole vectors.
template <typename T>
static void cross_entropy(const T *scores, const int64_t *labels, const int64_t *nodes, T *losses, T *grad, int64_t B,
                          int64_t N, int64_t J, int64_t n, int threads) {
    constexpr int64_t L = LANES<T>;
    const int64_t some = std::max<int64_t>(1, 1024 / J), room = (some * J + L - 1) / L * L;
    parallel_for(B, threads, [&](int64_t b) {
        Scratch scratch(Scratch::rounded(room * sizeof(T)));
        T *e = scratch.take<T>(room);
        std::fill(e, e + room, T(0));
        std::fill(grad + b * N * J, grad + (b + 1) * N * J, T(0));
        double loss = 0;
        for (int64_t first = 0; first < n; first += some) {
            const int64_t *mine = nodes + b * n + first, count = std::min(some, n - first);
            for (int64_t i = 0; i < count; ++i) {
                const T *s = scores + (b * N + mine[i]) * J;
                T top = s[0];
                for (int64_t j = 1; j < J; ++j)
                    top = s[j] > top ? s[j] : top;
                for (int64_t j = 0; j < J; ++j)
                    e[i * J + j] = s[j] - top;
                loss -= double(e[i * J + labels[mine[i]]]);
            }
            for (int64_t i = 0; i < count * J; i += L)
                store(e + i, exp_negative<T>(load(e + i)));
            for (int64_t i = 0; i < count; ++i) {
                T sum = 0, *d = grad + (b * N + mine[i]) * J;
                for (int64_t j = 0; j < J; ++j)
                    sum += e[i * J + j];
                loss += double(std::log(sum));
                const T factor = 1 / (sum * T(n));
                for (int64_t j = 0; j < J; ++j)
                    d[j] += e[i * J + j] * factor; // a node that comes twice counts twice
                d[labels[mine[i]]] -= 1 / T(n);
            }
        }
        losses[b] = T(loss / double(n));
    });
}

// How many of nodes[b] have their largest score, the first of equals, at their label. As for torch, NaN is larger than
// all numbers.
template <typename T>
static void correct(const T *scores, const int64_t *labels, const int64_t *nodes, int64_t *out, int64_t B, int64_t N,
                    int64_t J, int64_t n, int threads) {
    parallel_for(B, threads, [&](int64_t b) {
        int64_t count = 0;
        for (int64_t i = 0; i < n; ++i) {
            const int64_t node = nodes[b * n + i], label = labels[node];
            const T *s = scores + (b * N + node) * J, own = s[label];
            bool best = true;
            if (own == own) {
                for (int64_t j = 0; j < label; ++j)
                    best &= s[j] < own;
                for (int64_t j = label + 1; j < J; ++j)
                    best &= s[j] <= own;
            } else {
                for (int64_t j = 0; j < label; ++j)
                    best &= s[j] == s[j];
            }
            count += best;
        }
        out[b] = count;
    });
}

void register_loss(Kernels<float> &f, Kernels<double> &d) {
    f.cross_entropy = cross_entropy<float>;
    d.cross_entropy = cross_entropy<double>;
    f.correct = correct<float>;
    d.correct = correct<double>;
}

} // namespace codesgc::CODESGC_ISA
