#include "isa.h"
#include "mask.h"

namespace codesgc::CODESGC_ISA {

constexpr int64_t BLOCK = 1 << 15; // elements of a task

static void keep_bits(const int64_t *keys, const int32_t *thresholds, int64_t count, uint32_t *out, int64_t B,
                      int threads) {
    const int64_t blocks = (count + BLOCK - 1) / BLOCK, words = (count + 31) / 32;
    parallel_for(B * blocks, threads, [&](int64_t task) {
        const int64_t b = task / blocks, first = task % blocks * (BLOCK / 32), last = std::min(words, first + BLOCK / 32);
        const Mask mask(keys[b], thresholds[b]);
        uint32_t *to = out + b * words;
        for (int64_t w = first; w < last; ++w)
            to[w] = mask.block(w);
        if (last == words && count % 32)
            to[words - 1] &= (uint32_t(1) << count % 32) - 1;
    });
}

// out[b] = dropped(x[b]), for x (B, n), or (1, n) where x_step is 0.
template <typename T>
static void dropout(const T *x, int64_t x_step, Drop drop, T *out, int64_t B, int64_t n, int threads) {
    constexpr int64_t L = LANES<T>;
    const int64_t blocks = (n + BLOCK - 1) / BLOCK;
    parallel_for(B * blocks, threads, [&](int64_t task) {
        const int64_t b = task / blocks, first = task % blocks * BLOCK, last = std::min(n, first + BLOCK);
        const Mask mask(drop.keys[b], drop.thresholds[b]);
        const T scale = drop.scale<T>(b), *from = x + b * x_step;
        T *to = out + b * n;
        int64_t e = first;
        for (; e + 32 <= last; e += 32) {
            const uint32_t bits = mask.block(e / 32);
            for (int64_t i = 0; i < 32; i += L)
                store(to + e + i, load(from + e + i) * factors(bits >> i, scale));
        }
        if (e < last) {
            const uint32_t bits = mask.block(e / 32);
            for (int64_t i = 0; i < last - e; ++i)
                to[e + i] = from[e + i] * (bits >> i & 1 ? scale : T(0));
        }
    });
}

void register_dropout(Kernels<float> &f, Kernels<double> &d) {
    f.keep_bits = d.keep_bits = keep_bits;
    f.dropout = dropout<float>;
    d.dropout = dropout<double>;
}

} // namespace codesgc::CODESGC_ISA
