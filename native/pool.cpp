#include "pool.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace codesgc {
namespace {

// Waking a thread takes longer than many a kernel. So whoever waits looks for a moment before it sleeps, and lets others
// have the processor meanwhile.
constexpr auto MOMENT = std::chrono::microseconds(50);

void pause() {
#ifdef CODESGC_X86
    __builtin_ia32_pause();
#endif
}

template <typename F> void look_for(F &&ready) {
    const auto end = std::chrono::steady_clock::now() + MOMENT;
    while (!ready() && std::chrono::steady_clock::now() < end) {
        for (int i = 0; i < 16 && !ready(); ++i)
            pause();
        if (!ready())
            std::this_thread::yield();
    }
}

struct Job {
    const std::function<void(int64_t)> *task;
    int64_t count;
    std::atomic<int64_t> next{0};
    std::atomic<int> helpers{0}; // workers that are in it, changed under the pool's mutex
    std::exception_ptr error;
    std::mutex error_mutex;

    void run() {
        for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) {
            try {
                (*task)(i);
            } catch (...) {
                std::lock_guard lock(error_mutex);
                if (!error)
                    error = std::current_exception();
            }
        }
    }
};

class Pool {
  public:
    void run(Job &job, int helpers) {
        std::unique_lock lock(mutex_);
        while (int(workers_.size()) < helpers)
            workers_.emplace_back([this] { work(); }).detach();
        job_ = &job;
        wanted_ = helpers;
        wake_.notify_all();
        lock.unlock();
        job.run();
        look_for([&] { return job.helpers == 0; });
        lock.lock();
        wanted_ = 0; // who has not come yet need not come
        done_.wait(lock, [&] { return job.helpers == 0; });
        job_ = nullptr;
    }

    std::mutex busy; // one job at a time; a second caller works alone

  private:
    void work() {
        std::unique_lock lock(mutex_);
        for (;;) {
            wake_.wait(lock, [this] { return job_ && wanted_ > 0; });
            Job &job = *job_;
            --wanted_;
            ++job.helpers;
            lock.unlock();
            job.run();
            lock.lock();
            if (--job.helpers == 0)
                done_.notify_one();
            lock.unlock();
            look_for([this] { return wanted_ > 0; });
            lock.lock();
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_, done_;
    std::vector<std::thread> workers_;
    Job *job_ = nullptr;
    std::atomic<int> wanted_{0}; // workers that may still come, changed under the mutex
};

// Workers do not survive a fork, so each process has a pool of its own; it is never destroyed, since its sleeping
// workers may outlive the statics.
Pool &pool() {
    static std::mutex mutex;
    static Pool *pool = nullptr;
    static pid_t owner = 0;
    std::lock_guard lock(mutex);
    if (owner != getpid()) {
        pool = new Pool;
        owner = getpid();
    }
    return *pool;
}

} // namespace

namespace {

thread_local bool calling = false; // a task that calls again works alone

struct Calling {
    Calling() { calling = true; }
    ~Calling() { calling = false; }
};

} // namespace

void parallel_for(int64_t count, int threads, const std::function<void(int64_t)> &task) {
    Job job;
    job.task = &task;
    job.count = count;
    const int helpers = int(std::min<int64_t>(threads, count)) - 1;
    if (helpers > 0 && !calling) {
        Pool &p = pool();
        std::unique_lock busy(p.busy, std::try_to_lock);
        if (busy.owns_lock()) {
            const Calling here;
            p.run(job, helpers);
        }
    }
    job.run(); // alone, or with nothing left to do
    if (job.error)
        std::rethrow_exception(job.error);
}

namespace {

constexpr std::align_val_t ALIGNMENT{64};
constexpr size_t KEPT = size_t(64) << 20;

struct Kept {
    char *memory = nullptr;
    size_t size = 0;
    ~Kept() { ::operator delete(memory, ALIGNMENT); }
};
thread_local Kept kept;

} // namespace

Scratch::Scratch(size_t bytes) : memory_(kept.memory), size_(kept.size) {
    kept.memory = nullptr; // a task inside this one would take its own
    kept.size = 0;
    if (size_ < bytes) {
        ::operator delete(memory_, ALIGNMENT);
        memory_ = static_cast<char *>(::operator new(bytes, ALIGNMENT));
        size_ = bytes;
    }
    next_ = memory_;
}

Scratch::~Scratch() {
    if (size_ <= KEPT && size_ > kept.size) {
        std::swap(memory_, kept.memory);
        std::swap(size_, kept.size);
    }
    ::operator delete(memory_, ALIGNMENT);
}

} // namespace codesgc
