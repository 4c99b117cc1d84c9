// Included first by every kernel file, which is compiled once for each instruction set.
#pragma once
#include "kernels.h"
#include "pool.h"
#include "simd.h"

#include <algorithm>
#include <cmath>

namespace codesgc::CODESGC_ISA {
void register_advance(Kernels<float> &f, Kernels<double> &d);
void register_filter(Kernels<float> &f, Kernels<double> &d);
void register_dropout(Kernels<float> &f, Kernels<double> &d);
void register_features(Kernels<float> &f, Kernels<double> &d);
void register_dense(Kernels<float> &f, Kernels<double> &d);
void register_adam(Kernels<float> &f, Kernels<double> &d);
void register_loss(Kernels<float> &f, Kernels<double> &d);

// Into how many parts each replicate's work is cut, so that no thread is idle.
inline int64_t parts(int64_t B, int threads) { return B % threads ? threads : 1; }

void register_synthesise(Kernels<float> &f, Kernels<double> &d);
void register_analyse(Kernels<float> &f, Kernels<double> &d);
void register_core(Kernels<float> &f, Kernels<double> &d);
} // namespace codesgc::CODESGC_ISA
