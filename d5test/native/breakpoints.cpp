// One-shot breakpoints on the entries of functions: which of them does this process enter?
//
// At each entry stands an int3 in place of the function's first byte. Whoever arrives first traps;
// the handler puts the byte back, notes the function, and lets the thread go on from the entry, so
// that a function costs a trap once and nothing afterwards. One byte is written at a time, which
// other threads see whole: the processor allows it of an int3 in code that is being run.
//
// The handler calls nothing and takes no lock: it may have interrupted anything. A thread that
// blocks SIGTRAP dies of its first breakpoint.

#if !defined(__linux__) || !defined(__x86_64__)
#error "breakpoints need Linux on an x86-64 processor"
#endif

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <memory>
#include <sys/mman.h>
#include <ucontext.h>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

enum State : std::uint8_t { unarmed, armed, entered, told };

constexpr std::uint8_t int3 = 0xCC;

std::unique_ptr<std::uint64_t[]> addresses;  // of the entries, ascending
std::unique_ptr<std::uint8_t[]> bytes;       // that stood there
std::unique_ptr<std::uint8_t[]> states;
std::uint64_t size = 0;
struct sigaction before;

void write(std::uint64_t address, std::uint8_t byte) {
    __atomic_store_n(reinterpret_cast<std::uint8_t*>(address), byte, __ATOMIC_SEQ_CST);
}

// The place of an address among the entries; `size` if it is none.
std::uint64_t place(std::uint64_t address) {
    std::uint64_t first = 0, end = size;
    while (first < end) {
        const std::uint64_t middle = first + (end - first) / 2;
        if (addresses[middle] < address)
            first = middle + 1;
        else
            end = middle;
    }
    return first < size && addresses[first] == address ? first : size;
}

void trapped(int, siginfo_t*, void* context) {
    greg_t& rip = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP];
    const auto address = static_cast<std::uint64_t>(rip) - 1;
    const std::uint64_t i = place(address);
    if (i == size || bytes[i] == int3) {  // not ours: it is for whoever handled traps before
        sigaction(SIGTRAP, &before, nullptr);
        raise(SIGTRAP);
        return;
    }
    // another thread may have been here since this one trapped: then the byte is back already
    std::uint8_t expected = armed;
    if (__atomic_compare_exchange_n(&states[i], &expected, entered, false, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST))
        write(address, bytes[i]);
    rip = static_cast<greg_t>(address);
}

}  // namespace

// Make a range of code writable. 0, or errno's value.
EXPORTED int writable(std::uint64_t start, std::uint64_t end) {
    const int rights = PROT_READ | PROT_WRITE | PROT_EXEC;
    return mprotect(reinterpret_cast<void*>(start), end - start, rights) == 0 ? 0 : errno;
}

// Take over the entries, which ascend, and handle traps. Once in a process. 0, or errno's value.
EXPORTED int install(const std::uint64_t* entries, std::uint64_t count) {
    addresses.reset(new std::uint64_t[count]);
    bytes.reset(new std::uint8_t[count]);
    states.reset(new std::uint8_t[count]());
    std::memcpy(addresses.get(), entries, count * sizeof *entries);
    for (std::uint64_t i = 0; i < count; ++i)
        bytes[i] = *reinterpret_cast<const std::uint8_t*>(entries[i]);
    size = count;
    struct sigaction action;
    std::memset(&action, 0, sizeof action);
    action.sa_sigaction = trapped;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    return sigaction(SIGTRAP, &action, &before) == 0 ? 0 : errno;
}

// Arm those at `places`.
EXPORTED void arm(const std::uint64_t* places, std::uint64_t count) {
    for (std::uint64_t k = 0; k < count; ++k) {
        const std::uint64_t i = places[k];
        __atomic_store_n(&states[i], std::uint8_t{armed}, __ATOMIC_SEQ_CST);
        write(addresses[i], int3);
    }
}

// Write the places of those that were entered since the last call, ascending; how many they are.
EXPORTED std::uint64_t take(std::uint64_t* places) {
    std::uint64_t count = 0;
    for (std::uint64_t i = 0; i < size; ++i)
        if (__atomic_load_n(&states[i], __ATOMIC_SEQ_CST) == entered) {
            __atomic_store_n(&states[i], std::uint8_t{told}, __ATOMIC_SEQ_CST);
            places[count++] = i;
        }
    return count;
}
