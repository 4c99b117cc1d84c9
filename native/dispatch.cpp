#include "kernels.h"

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

namespace codesgc {

#define CODESGC_DECLARE(isa)                                                                                           \
    namespace isa {                                                                                                    \
    void fill(Kernels<float> &f, Kernels<double> &d);                                                                  \
    }
CODESGC_DECLARE(plain)
#ifdef CODESGC_X86
CODESGC_DECLARE(avx2)
CODESGC_DECLARE(avx512)
#endif

namespace {

struct Tables {
    Kernels<float> f;
    Kernels<double> d;
    const Kernels<float> &get(float) const { return f; }
    const Kernels<double> &get(double) const { return d; }
};

bool supported(const std::string &name) {
#ifdef CODESGC_X86
    if (name == "avx512")
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    if (name == "avx2")
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return name == "plain";
}

const Tables &tables(const std::string &name) {
    if (!supported(name))
        throw std::invalid_argument("instruction set '" + name + "' is not there: expected avx512, avx2 or plain, "
                                    "as this processor has them");
#ifdef CODESGC_X86
    if (name == "avx512") {
        static const Tables t = [] { Tables t; avx512::fill(t.f, t.d); return t; }();
        return t;
    }
    if (name == "avx2") {
        static const Tables t = [] { Tables t; avx2::fill(t.f, t.d); return t; }();
        return t;
    }
#endif
    static const Tables t = [] { Tables t; plain::fill(t.f, t.d); return t; }();
    return t;
}

} // namespace

const char *instruction_set() {
    // for tests and measurements: a narrower one than the best
    static const char *const asked = std::getenv("CODESGC_INSTRUCTION_SET");
    if (asked)
        return asked;
    return supported("avx512") ? "avx512" : supported("avx2") ? "avx2" : "plain";
}

template <typename T> const Kernels<T> &kernels(const char *name) {
    return tables(name ? name : instruction_set()).get(T{});
}
template const Kernels<float> &kernels<float>(const char *);
template const Kernels<double> &kernels<double>(const char *);

} // namespace codesgc
