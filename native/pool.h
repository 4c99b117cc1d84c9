// Threads that sleep between calls, after a moment in which they look for the next one: two pools that wait busily for
// longer on the same cores would starve each other.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>

namespace codesgc {

// Calls task(0), ..., task(count - 1), each once, on up to `threads` threads, the caller's included. Which thread takes
// which task is not determined, so a task must not depend on the others.
void parallel_for(int64_t count, int threads, const std::function<void(int64_t)> &task);

// Memory of the calling thread for the duration of a task, kept for its next one (up to 64 MB): fresh pages are slow.
class Scratch {
  public:
    explicit Scratch(size_t bytes); // of all pieces together, each rounded up to 64
    ~Scratch();
    Scratch(const Scratch &) = delete;
    Scratch &operator=(const Scratch &) = delete;

    static constexpr size_t rounded(size_t bytes) { return (bytes + 63) / 64 * 64; }

    // The next `count` numbers, aligned to 64 bytes and not initialised.
    template <typename T> T *take(size_t count) {
        char *piece = next_;
        next_ += rounded(count * sizeof(T));
        return reinterpret_cast<T *>(piece);
    }

  private:
    char *memory_, *next_;
    size_t size_;
};

} // namespace codesgc
