// Judged calls: every buffer lies between zones that nobody may write to, outputs are poisoned, what
// is read must stay as it is, and memory that is asked for must be given back.
#pragma once

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>

#ifdef __GLIBC__
#include <malloc.h>
#endif
#ifdef __SANITIZE_ADDRESS__
extern "C" {  // declared here: not every g++ comes with the sanitizers' headers
void __asan_poison_memory_region(const volatile void* address, std::size_t size);
void __asan_unpoison_memory_region(const volatile void* address, std::size_t size);
std::size_t __sanitizer_get_current_allocated_bytes();
}
#endif

#include "tensor.h"

namespace d5test::guard {

/// What an operator did to memory that is not its own; named, and never counted as unsupported.
struct Fault : std::runtime_error {
    using std::runtime_error::runtime_error;
};

constexpr std::size_t least_zone = 4096, most_zone = std::size_t(1) << 24, aligned = 64;
constexpr std::size_t watched_bytes = 1 << 16;  // heaps are watched in calls on no more than this
constexpr unsigned char zone_byte = 0xFF;  // read as a floating-point number it is NaN
/// Signalling NaNs: whoever computes with one gets another, whoever leaves it there is found.
constexpr std::uint32_t poison32 = 0x7fa5d5d5u;
constexpr std::uint64_t poison64 = 0x7ff4d5d5d5d5d5d5u;

/// The memory that a tensor reaches, in elements from the first: lowest and one beyond the highest.
inline std::pair<std::int64_t, std::int64_t> reach(const D5Tensor& tensor) {
    if (tensor.ndim < 0) return {0, 0};
    std::int64_t low = 0, high = 1;
    for (int axis = 0; axis < tensor.ndim; ++axis) {
        if (tensor.shape[axis] == 0) return {0, 0};
        const std::int64_t last = (tensor.shape[axis] - 1) * tensor.strides[axis];
        (last < 0 ? low : high) += last;
    }
    return {low, high};
}

/// A copy of a tensor's memory between two zones.
class Zoned {
public:
    Zoned(const D5Tensor& original, const char* name, bool written)
        : tensor(original), name_(name), written_(written),
          item_(std::max<std::size_t>(1, original.dtype.bits / 8)) {
        const auto [low, high] = reach(original);
        bytes_ = static_cast<std::size_t>(high - low) * item_;
        if (bytes_) source_ = static_cast<char*>(original.data) + original.byte_offset + low * item_;
        zone_ = std::clamp((bytes_ + aligned - 1) / aligned * aligned, least_zone, most_zone);
        const std::size_t rounded = (bytes_ + aligned - 1) / aligned * aligned;
        block_.reset(static_cast<unsigned char*>(
            std::aligned_alloc(aligned, 2 * zone_ + rounded)));
        if (!block_) throw std::bad_alloc();
        end_ = 2 * zone_ + rounded;
        std::memset(block_.get(), zone_byte, end_);
        if (written_)
            poison();
        else if (bytes_)
            std::memcpy(inside(), source_, bytes_);
        tensor.data = inside() - low * item_;
        tensor.byte_offset = 0;
        close(block_.get(), zone_);
        close(inside() + bytes_, end_ - zone_ - bytes_);
    }
    ~Zoned() { open(); }
    Zoned(const Zoned&) = delete;
    Zoned& operator=(const Zoned&) = delete;

    /// Throws `Fault` if anything is not as it must be after a call.
    void inspect() {
        open();
        const auto intact = [](unsigned char byte) { return byte == zone_byte; };
        unsigned char *first = block_.get(), *behind = inside() + bytes_, *last = first + end_;
        if (!std::all_of(first, inside(), intact)) {
            const auto* at = std::find_if_not(first, inside(), intact);
            fail("writes " + whole(inside() - at) + " bytes before the first of ");
        }
        if (!std::all_of(behind, last, intact)) {
            const auto at = std::find_if_not(std::make_reverse_iterator(last),
                                             std::make_reverse_iterator(behind), intact);
            fail("writes " + whole(at.base() - behind) + " bytes beyond the last of ");
        }
        if (!bytes_) return;
        if (!written_ && std::memcmp(inside(), source_, bytes_) != 0) fail("overwrites ");
        if (!written_) return;
        for (std::size_t at = 0; at < bytes_; at += item_)
            if (std::memcmp(inside() + at, pattern(), item_) == 0)
                fail("leaves element " + std::to_string(at / item_) + " unwritten of ");
    }

    std::size_t bytes() const { return bytes_; }

    /// Hand on what was written.
    void deliver() const {
        if (bytes_) std::memcpy(source_, inside(), bytes_);
    }

    D5Tensor tensor;

private:
    unsigned char* inside() const { return block_.get() + zone_; }
    /// For AddressSanitizer, who then sees the touch itself, a zone is out of bounds.
    void close([[maybe_unused]] unsigned char* zone, [[maybe_unused]] std::size_t size) {
#ifdef __SANITIZE_ADDRESS__
        __asan_poison_memory_region(zone, size);
#endif
    }
    void open() {
#ifdef __SANITIZE_ADDRESS__
        __asan_unpoison_memory_region(block_.get(), end_);
#endif
    }
    const void* pattern() const {
        return item_ == 8 ? static_cast<const void*>(&poison64) : &poison32;
    }
    void poison() {
        for (std::size_t at = 0; at < bytes_; at += item_)
            std::memcpy(inside() + at, pattern(), item_);
    }
    std::string whole(std::ptrdiff_t bytes) const {
        const auto item = static_cast<std::ptrdiff_t>(item_);
        return std::to_string((bytes + item - 1) / item * item);
    }
    [[noreturn]] void fail(const std::string& what) const { throw Fault(what + name_); }

    struct Free { void operator()(void* block) const { std::free(block); } };
    std::string name_;
    bool written_;
    std::size_t item_, bytes_ = 0, zone_ = 0, end_ = 0;
    char* source_ = nullptr;
    std::unique_ptr<unsigned char, Free> block_;
};

/// Bytes that are in use on the heap; 0 where that is not known.
inline std::size_t in_use() {
#if defined(__SANITIZE_ADDRESS__)
    return __sanitizer_get_current_allocated_bytes();
#elif defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
    const auto heap = mallinfo2();
    return heap.uordblks + heap.hblkhd;
#else
    return 0;
#endif
}

/// Throws `Fault` if calls keep memory, again and again. What is kept once is no leak (a workspace, a
/// thread's stack), nor what another thread of the process keeps now and then.
///
/// One call tells nothing: glibc takes free blocks of a size from its heap by up to `cached` at once,
/// counts all as in use, and the next calls get theirs without a change. So it is series that are
/// longer: if memory is kept, each of them takes blocks from the heap.
inline void watch_heap(const std::function<void()>& call) {
    constexpr int series = 6, cached = 16, length = cached + 1;
    call();
    std::size_t kept = 0;
    for (int k = 0; k < series; ++k) {
        const std::size_t before = in_use();
        for (int i = 0; i < length; ++i) call();
        const std::size_t after = in_use();
        if (after <= before) return;
        kept += after - before;
    }
    throw Fault("keeps " + std::to_string(kept / (series * length)) +
                " bytes of memory at each call");
}

}  // namespace d5test::guard
