// Primitives of oneDNN on row-major tensors: made once for each set of shapes, with what moves the
// tensors into the layouts that they choose.
#pragma once

#include <map>
#include <mutex>
#include <optional>

#include <dnnl.hpp>

#include <d5test/operator.h>

#if DNNL_VERSION_MAJOR != 2
#error "the backend onednn is for oneDNN 2 (Debian: apt install libdnnl-dev); this is another"
#endif

namespace onednn {

using d5test::Shape;
using d5test::Shapes;
using d5test::Tensor;
using Dims = dnnl::memory::dims;
using Layout = dnnl::memory::desc;

constexpr auto training = dnnl::prop_kind::forward_training;

inline const dnnl::engine& cpu() {
    static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    return engine;
}

/// float32 with its axes in the order of their sizes in memory: a tensor of ours.
inline Layout row_major(const Dims& dims) {
    Dims strides(dims.size(), 1);
    for (std::size_t k = dims.size(); k-- > 1;) strides[k - 1] = strides[k] * dims[k];
    return {dims, dnnl::memory::data_type::f32, strides};
}
/// float32 as a primitive likes it best.
inline Layout any(const Dims& dims) {
    return {dims, dnnl::memory::data_type::f32, dnnl::memory::format_tag::any};
}
inline std::int64_t volume(const Shape& shape) {
    std::int64_t size = 1;
    for (const auto side : shape) size *= side;
    return size;
}

/// oneDNN computes float32: operators are compiled for double too, and made for float only.
template <typename T>
void require_float() {
    if constexpr (!std::is_same_v<T, float>) throw d5test::Unsupported("oneDNN has no float64");
}

/// An argument of a primitive: which (DNNL_ARG_...), and how ours lies in memory.
struct Argument {
    int name;
    Layout ours;
    bool written = false;
    dnnl::memory kept = {};  // memory of its own, where it is none of ours
};

/// A primitive with memory for those of its arguments that it wants in another layout than ours.
class Program {
public:
    Program(const dnnl::primitive_desc& chosen, std::vector<Argument> arguments)
        : primitive_(chosen), stream_(cpu()) {
        for (auto& argument : arguments) {
            if (argument.kept) {
                arguments_.emplace(argument.name, argument.kept);
                continue;
            }
            const auto wanted = chosen.query_md(dnnl::query::exec_arg_md, argument.name);
            Port port{std::move(argument), {}, {}, {}};
            port.outer = dnnl::memory(port.ours, cpu(), nullptr);
            const bool same = wanted == port.ours;
            port.inner = same ? port.outer : dnnl::memory(wanted, cpu());
            if (!same)
                port.move = port.written ? dnnl::reorder(port.inner, port.outer)
                                         : dnnl::reorder(port.outer, port.inner);
            arguments_.emplace(port.name, port.inner);
            ports_.push_back(std::move(port));
        }
    }

    /// Run it on tensors of ours, in the order of the arguments.
    void run(const std::vector<const void*>& tensors) {
        for (std::size_t k = 0; k < ports_.size(); ++k) {
            ports_[k].outer.set_data_handle(const_cast<void*>(tensors[k]));
            if (ports_[k].move && !ports_[k].written)
                ports_[k].move->execute(stream_, ports_[k].outer, ports_[k].inner);
        }
        primitive_.execute(stream_, arguments_);
        for (auto& port : ports_)
            if (port.move && port.written) port.move->execute(stream_, port.inner, port.outer);
        stream_.wait();
    }

private:
    struct Port : Argument {
        Port(Argument argument, dnnl::memory outer, dnnl::memory inner,
             std::optional<dnnl::reorder> move)
            : Argument(std::move(argument)), outer(outer), inner(inner), move(move) {}
        dnnl::memory outer, inner;
        std::optional<dnnl::reorder> move;
    };

    dnnl::primitive primitive_;
    dnnl::stream stream_;
    std::vector<Port> ports_;
    std::unordered_map<int, dnnl::memory> arguments_;
};

/// What an operator has ready for the shapes that it was called with. Threads take turns: a program
/// has memory.
template <typename Ready>
class ByShapes {
public:
    /// Call `use` with what is ready for `shapes`, which `make` makes if there is nothing yet.
    template <typename Make, typename Use>
    void with(const Shapes& shapes, const Make& make, const Use& use) {
        const std::lock_guard<std::mutex> lock(mutex_);
        try {
            auto found = known_.find(shapes);
            if (found == known_.end()) found = known_.emplace(shapes, make()).first;
            use(found->second);
        } catch (const dnnl::error& error) {
            if (error.status == dnnl_unimplemented)
                throw d5test::Unsupported(std::string("oneDNN: ") + error.what());
            throw;
        }
    }

private:
    std::mutex mutex_;
    std::map<Shapes, Ready> known_;
};

/// The programs of an operator.
class Programs {
public:
    /// Run on `tensors` the program of `shapes`.
    template <typename Make>
    void run(const Shapes& shapes, const std::vector<const void*>& tensors, const Make& make) {
        known_.with(shapes, make, [&](Program& program) { program.run(tensors); });
    }

private:
    ByShapes<Program> known_;
};

/// Whether there is nothing to compute; of tensors without elements oneDNN computes nothing else.
template <typename... Given>
bool nothing(const Shape& result, const Given&... given) {
    if (volume(result) == 0) return true;
    if (((volume(given) == 0) || ...))
        throw d5test::Unsupported("oneDNN computes nothing of a tensor without elements");
    return false;
}

}  // namespace onednn
