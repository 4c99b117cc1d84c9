// Vectors from GCC's vector extension: the same source becomes AVX-512, AVX2 or plain code by the flags of the
// translation unit, whose functions live in the namespace CODESGC_ISA so that all versions link into one library.
// A vector is as wide as a register: GCC keeps wider ones in memory, which made the kernels twenty times slower.
#pragma once
#include <cstdint>
#include <cstring>
#include <utility>
#ifdef __AVX2__
#include <immintrin.h>
#endif

#ifndef CODESGC_ISA
#define CODESGC_ISA plain
#endif

namespace codesgc::CODESGC_ISA {

#if defined(__AVX512F__)
constexpr int REGISTER = 64, REGISTERS = 32; // bytes of a register, and how many there are
#elif defined(__AVX2__)
constexpr int REGISTER = 32, REGISTERS = 16;
#else
constexpr int REGISTER = 16, REGISTERS = 16;
#endif

template <typename T> struct VectorOf;
template <> struct VectorOf<float> {
    typedef float type __attribute__((vector_size(REGISTER)));
};
template <> struct VectorOf<double> {
    typedef double type __attribute__((vector_size(REGISTER)));
};
template <typename T> using Vector = typename VectorOf<T>::type;

// Lanes of a vector: 16 floats or 8 doubles with AVX-512, half of that with AVX2, a quarter in plain code.
template <typename T> constexpr int64_t LANES = REGISTER / sizeof(T);

template <typename T> inline Vector<T> load(const T *p) {
    Vector<T> v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

template <typename T> inline void store(T *p, Vector<T> v) { std::memcpy(p, &v, sizeof v); }

template <typename T> inline Vector<T> splat(T x) { return Vector<T>{} + x; }

#if defined(__AVX2__) && !defined(__AVX512F__)
template <typename T> inline __m256i first_lanes(int64_t count) {
    if constexpr (sizeof(T) == 4)
        return _mm256_cmpgt_epi32(_mm256_set1_epi32(int(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    else
        return _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), _mm256_setr_epi64x(0, 1, 2, 3));
}
#endif

// The first `count` lanes of p, zeros behind them; and back. By masks where there are any: a copy of a length that the
// compiler does not know is a call.
template <typename T> inline Vector<T> load_part(const T *p, int64_t count) {
#ifdef __AVX512F__
    if constexpr (sizeof(T) == 4)
        return Vector<T>(_mm512_maskz_loadu_ps(__mmask16((1u << count) - 1), p));
    else
        return Vector<T>(_mm512_maskz_loadu_pd(__mmask8((1u << count) - 1), p));
#elif defined(__AVX2__)
    if constexpr (sizeof(T) == 4)
        return Vector<T>(_mm256_maskload_ps(p, first_lanes<T>(count)));
    else
        return Vector<T>(_mm256_maskload_pd(p, first_lanes<T>(count)));
#else
    if (count == LANES<T>)
        return load(p);
    Vector<T> v{};
    std::memcpy(&v, p, count * sizeof(T));
    return v;
#endif
}

template <typename T> inline void store_part(T *p, Vector<T> v, int64_t count) {
#ifdef __AVX512F__
    if constexpr (sizeof(T) == 4)
        _mm512_mask_storeu_ps(p, __mmask16((1u << count) - 1), __m512(v));
    else
        _mm512_mask_storeu_pd(p, __mmask8((1u << count) - 1), __m512d(v));
#elif defined(__AVX2__)
    if constexpr (sizeof(T) == 4)
        _mm256_maskstore_ps(p, first_lanes<T>(count), __m256(v));
    else
        _mm256_maskstore_pd(p, first_lanes<T>(count), __m256d(v));
#else
    if (count == LANES<T>)
        return store(p, v);
    std::memcpy(p, &v, count * sizeof(T));
#endif
}

// to += v for the sums that are kept in double; lane by lane, compilers take the vector apart.
inline void add_to(double *to, Vector<double> v) { store(to, load(to) + v); }

inline void add_to(double *to, Vector<float> v) {
    typedef float Half __attribute__((vector_size(REGISTER / 2)));
    Half half[2];
    std::memcpy(half, &v, sizeof v);
    add_to(to, __builtin_convertvector(half[0], Vector<double>));
    add_to(to + LANES<double>, __builtin_convertvector(half[1], Vector<double>));
}

// V vectors side by side: the columns of a node that are worked on together, in registers.
template <typename T, int V> struct Row {
    Vector<T> v[V];

    static Row load(const T *p) {
        Row r;
#pragma GCC unroll 8
        for (int i = 0; i < V; ++i)
            r.v[i] = CODESGC_ISA::load(p + i * LANES<T>);
        return r;
    }
    void store(T *p) const {
#pragma GCC unroll 8
        for (int i = 0; i < V; ++i)
            CODESGC_ISA::store(p + i * LANES<T>, v[i]);
    }
    Row &operator+=(const Row &r) {
#pragma GCC unroll 8
        for (int i = 0; i < V; ++i)
            v[i] += r.v[i];
        return *this;
    }
    friend Row operator+(Row a, const Row &b) { return a += b; }
    friend Row operator-(Row a, const Row &b) {
#pragma GCC unroll 8
        for (int i = 0; i < V; ++i)
            a.v[i] -= b.v[i];
        return a;
    }
    friend Row operator*(Row a, const Row &b) {
#pragma GCC unroll 8
        for (int i = 0; i < V; ++i)
            a.v[i] *= b.v[i];
        return a;
    }
    friend Row operator*(T x, Row a) {
#pragma GCC unroll 8
        for (int i = 0; i < V; ++i)
            a.v[i] *= x;
        return a;
    }
};

// r[i][j] <-> r[j][i] for LANES vectors, by halves: step s exchanges the off-diagonal blocks of s lanes.
template <typename T, int S, int... lane>
inline void exchange(Vector<T> &a, Vector<T> &b, std::integer_sequence<int, lane...>) {
    constexpr int L = LANES<T>;
    const Vector<T> x = a, y = b;
#ifdef __clang__
    a = __builtin_shufflevector(x, y, (lane & S ? L + lane - S : lane)...);
    b = __builtin_shufflevector(x, y, (lane & S ? L + lane : lane + S)...);
#else
    typedef decltype(x < y) Lanes; // integers of the same width
    a = __builtin_shuffle(x, y, Lanes{(lane & S ? L + lane - S : lane)...});
    b = __builtin_shuffle(x, y, Lanes{(lane & S ? L + lane : lane + S)...});
#endif
}

template <typename T, int S = 1> inline void transpose(Vector<T> (&r)[LANES<T>]) {
    constexpr int L = LANES<T>;
    if constexpr (S < L) {
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i)
            if (!(i & S))
                exchange<T, S>(r[i], r[i + S], std::make_integer_sequence<int, L>{});
        transpose<T, 2 * S>(r);
    }
}

} // namespace codesgc::CODESGC_ISA
