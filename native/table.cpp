#include "isa.h"

namespace codesgc::CODESGC_ISA {

// All kernels of this instruction set; called once by dispatch.cpp.
void fill(Kernels<float> &f, Kernels<double> &d) {
    register_advance(f, d);
    register_filter(f, d);
    register_dropout(f, d);
    register_features(f, d);
    register_dense(f, d);
    register_adam(f, d);
    register_loss(f, d);
    register_synthesise(f, d);
    register_analyse(f, d);
    register_core(f, d);
}

} // namespace codesgc::CODESGC_ISA
