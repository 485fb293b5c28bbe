// Native operators as calls of XLA's foreign function interface.
//
// Compiled once for each jaxlib. Which operator is called is an attribute of the call: its table, and
// the operator made for the attributes and the dtype, both as addresses. Two calls serve all.
#include <array>
#include <string>
#include <vector>

#include "d5test/interface.h"
#include "xla/ffi/api/ffi.h"

namespace {

namespace ffi = xla::ffi;

/// Buffers as the interface has them: XLA's are row-major.
class Views {
public:
    Views(const D5Operator& op, std::size_t count) : device_(op.device), strides_(count) {
        views_.reserve(count);
    }

    template <typename Buffer>
    void add(const Buffer& buffer) {
        const auto shape = buffer.dimensions();
        auto& strides = strides_[views_.size()];
        std::int64_t size = 1;
        for (std::size_t axis = shape.size(); axis-- > 0; size *= shape[axis]) strides[axis] = size;
        const bool wide = buffer.element_type() == ffi::DataType::F64;
        D5Tensor one{};
        one.data = buffer.untyped_data();
        one.device = {device_, 0};
        one.ndim = static_cast<std::int32_t>(shape.size());
        one.dtype = {2, static_cast<std::uint8_t>(wide ? 64 : 32), 1};
        one.shape = const_cast<std::int64_t*>(shape.begin());
        one.strides = strides.data();
        views_.push_back(one);
    }
    void add(const ffi::RemainingArgs& given) {
        for (std::size_t k = 0; k < given.size(); ++k) add(*given.get<ffi::AnyBuffer>(k));
    }
    void add(const ffi::RemainingRets& given) {
        for (std::size_t k = 0; k < given.size(); ++k) add(**given.get<ffi::AnyBuffer>(k));
    }
    const D5Tensor* data() const { return views_.data(); }

private:
    std::int32_t device_;
    std::vector<std::array<std::int64_t, D5_MOST_DIMENSIONS>> strides_;
    std::vector<D5Tensor> views_;
};

template <typename Call>
ffi::Error told(const Call& call) {
    std::array<char, 4096> room{};
    switch (call(D5Message{room.data(), room.size()})) {
        case D5_OK: return ffi::Error::Success();
        case D5_UNSUPPORTED: return ffi::Error(ffi::ErrorCode::kUnimplemented, room.data());
        default: return ffi::Error(ffi::ErrorCode::kInternal, room.data());
    }
}

/// inputs -> outputs
ffi::Error forward(void* stream, std::int64_t table, std::int64_t made, ffi::RemainingArgs given,
                   ffi::RemainingRets found) {
    const auto* op = reinterpret_cast<const D5Operator*>(table);
    Views inputs(*op, given.size()), outputs(*op, found.size());
    inputs.add(given);
    outputs.add(found);
    return told([&](D5Message message) {
        return op->forward(reinterpret_cast<void*>(made), inputs.data(), outputs.data(), stream,
                           message);
    });
}

/// grads, inputs, outputs -> gradients of the inputs
ffi::Error backward(void* stream, std::int64_t table, std::int64_t made, ffi::RemainingArgs given,
                    ffi::RemainingRets found) {
    const auto* op = reinterpret_cast<const D5Operator*>(table);
    Views read(*op, given.size()), written(*op, found.size());
    read.add(given);
    written.add(found);
    const D5Tensor* grads = read.data();
    const D5Tensor* inputs = grads + op->output_count;
    return told([&](D5Message message) {
        return op->backward(reinterpret_cast<void*>(made), grads, inputs,
                            inputs + op->input_count, written.data(), stream, message);
    });
}

ffi::Error forward_on_host(std::int64_t table, std::int64_t made, ffi::RemainingArgs given,
                           ffi::RemainingRets found) {
    return forward(nullptr, table, made, given, found);
}

ffi::Error backward_on_host(std::int64_t table, std::int64_t made, ffi::RemainingArgs given,
                            ffi::RemainingRets found) {
    return backward(nullptr, table, made, given, found);
}

auto on_host() {
    return ffi::Ffi::Bind()
        .Attr<std::int64_t>("table").Attr<std::int64_t>("made").RemainingArgs().RemainingRets();
}

auto on_cuda() {
    return ffi::Ffi::Bind().Ctx<ffi::PlatformStream<void*>>()
        .Attr<std::int64_t>("table").Attr<std::int64_t>("made").RemainingArgs().RemainingRets();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(d5test_jax_forward_cpu, forward_on_host, on_host());
XLA_FFI_DEFINE_HANDLER_SYMBOL(d5test_jax_backward_cpu, backward_on_host, on_host());
XLA_FFI_DEFINE_HANDLER_SYMBOL(d5test_jax_forward_CUDA, forward, on_cuda());
XLA_FFI_DEFINE_HANDLER_SYMBOL(d5test_jax_backward_CUDA, backward, on_cuda());
