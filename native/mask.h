// The generator of engine/dropout.py: element e of a stream takes the 16-bit half (e mod 2) of the word
// hash_32(e / 2; key), in memory order, and stays where that number is at least the threshold 2^16 rate.
#pragma once
#include "kernels.h"
#include "simd.h"

namespace codesgc::CODESGC_ISA {

constexpr int WORDS = REGISTER / 4;
typedef uint32_t Words __attribute__((vector_size(REGISTER)));
typedef uint16_t Halves __attribute__((vector_size(REGISTER)));

// 0, 1, 2, ...
inline Words lanes() {
    Words w{};
    for (int i = 0; i < WORDS; ++i)
        w[i] = uint32_t(i);
    return w;
}

// Bit e of the result: whether half e of the words, in memory order, is at least the threshold, one of 0 to 65535.
inline uint32_t halves_at_least(Words words, uint16_t threshold) {
#if defined(__AVX512F__)
    return _mm512_cmpge_epu16_mask(__m512i(words), _mm512_set1_epi16(short(threshold)));
#elif defined(__AVX2__)
    const __m256i stays = __m256i(Halves(words) >= threshold);
    const __m128i low = _mm256_castsi256_si128(stays), high = _mm256_extracti128_si256(stays, 1);
    return uint32_t(_mm_movemask_epi8(_mm_packs_epi16(low, high)));
#else
    uint32_t bits = 0;
    for (int i = 0; i < WORDS; ++i)
        bits |= uint32_t((words[i] & 0xFFFF) >= threshold) << 2 * i | uint32_t((words[i] >> 16) >= threshold) << (2 * i + 1);
    return bits;
#endif
}

// Bit i of the result: whether word i is at least the threshold; both below 2^31.
inline uint32_t words_at_least(Words words, int32_t threshold) {
#if defined(__AVX512F__)
    return _mm512_cmpge_epi32_mask(__m512i(words), _mm512_set1_epi32(threshold));
#elif defined(__AVX2__)
    const __m256i stays = _mm256_cmpgt_epi32(__m256i(words), _mm256_set1_epi32(threshold - 1));
    return uint32_t(_mm256_movemask_ps(_mm256_castsi256_ps(stays)));
#else
    uint32_t bits = 0;
    for (int i = 0; i < WORDS; ++i)
        bits |= uint32_t(int32_t(words[i]) >= threshold) << i;
    return bits;
#endif
}

// The mask of one replicate's tensor.
struct Mask {
    uint32_t low, high;
    int32_t threshold;

    Mask(int64_t key, int32_t threshold) : low(uint32_t(key)), high(uint32_t(key >> 32)), threshold(threshold) {}

    // Bit e: whether element 32 block + e stays.
    uint32_t block(int64_t block) const {
        if (threshold > 0xFFFF)
            return 0;
        uint32_t bits = 0;
        for (int word = 0; word < 16; word += WORDS)
            bits |= halves_at_least(hash(lanes() + uint32_t(block * 16 + word)), uint16_t(threshold)) << 2 * word;
        return bits;
    }

    // Bit i: whether element elements[i] stays, for 16 of them.
    uint32_t sixteen(const int32_t *elements) const {
        uint32_t bits = 0;
        for (int i = 0; i < 16; i += WORDS) {
            Words e;
            std::memcpy(&e, elements + i, sizeof e);
            bits |= words_at_least(halves(e), threshold) << i;
        }
        return bits;
    }

    // The words x of the stream: one serves the elements 2 x and 2 x + 1.
    Words hash(Words x) const {
        x = x * 0x9E3779B9u + low;
        x = (x ^ (x >> 17)) * 0xED5AD4BBu;
        x = (x ^ (x >> 11) ^ high) * 0xAC4C1B51u;
        x = (x ^ (x >> 15)) * 0x31848BABu;
        return x ^ (x >> 14);
    }

    // What stands for each of the elements e, 0 to 65535.
    Words halves(Words e) const { return (hash(e >> 1) >> ((e & 1) << 4)) & 0xFFFF; }
};

// Lanes whose bit is set get the scale, the others 0.
template <typename T> inline Vector<T> factors(uint32_t bits, T scale) {
    typedef decltype(Vector<T>{} < Vector<T>{}) Ints; // integers as wide as T
    Ints lane{};
    for (int i = 0; i < LANES<T>; ++i)
        lane[i] = 1 << i;
    return ((Ints{} + int(bits)) & lane) != 0 ? splat(scale) : Vector<T>{};
}

// The same from the halves of some elements, WORDS of them.
template <typename T> inline void factors_of(Words halves, int32_t threshold, T scale, Vector<T> *to) {
    if constexpr (sizeof(T) == sizeof(uint32_t)) {
        typedef int32_t Ints __attribute__((vector_size(REGISTER)));
        *to = Ints(halves) >= threshold ? splat(scale) : Vector<T>{};
    } else {
        const uint32_t bits = words_at_least(halves, threshold);
        for (int64_t at = 0; at < WORDS; at += LANES<T>)
            *to++ = factors(bits >> at, scale);
    }
}

// A dropout of one replicate's tensor on the way: what passes through `apply` in about the order of its elements.
template <typename T> class Dropping {
  public:
    Dropping(const Drop &drop, int64_t b)
        : on_(bool(drop)), mask_(drop ? drop.keys[b] : 0, drop ? drop.thresholds[b] : 0), scale_(drop.scale<T>(b)) {}

    explicit operator bool() const { return on_; }

    // The elements e, e + 1, ..., of which the first `count` matter, dropped and scaled.
    Vector<T> apply(Vector<T> v, int64_t e, int64_t count = LANES<T>) {
        return on_ ? v * factors(bits(e, count), scale_) : v;
    }

  private:
    uint32_t bits(int64_t e, int64_t count) {
        const int64_t block = e >> 5, shift = e & 31;
        if (block != block_) {
            now_ = block == block_ + 1 && ahead_ ? next_ : mask_.block(block);
            block_ = block;
            ahead_ = false;
        }
        if (shift + count <= 32)
            return now_ >> shift;
        if (!ahead_) {
            next_ = mask_.block(block + 1);
            ahead_ = true;
        }
        return now_ >> shift | next_ << (32 - shift);
    }

    bool on_, ahead_ = false;
    Mask mask_;
    T scale_;
    int64_t block_ = -2;
    uint32_t now_ = 0, next_ = 0;
};

} // namespace codesgc::CODESGC_ISA
