// Native operators as calls of XLA's foreign function interface.
//
// Compiled once for each jaxlib. Which operator is called is an attribute of the call: its table, and
// the operator made for the attributes and the dtype, both as addresses. Two calls serve all.
#include "row_major.h"
#include "xla/ffi/api/ffi.h"

namespace {

namespace ffi = xla::ffi;
using bridge::RowMajor;
using bridge::Said;

template <typename Buffer>
void add(RowMajor& views, const Buffer& buffer) {
    const auto shape = buffer.dimensions();
    views.add(buffer.untyped_data(), buffer.element_type() == ffi::DataType::F64 ? 64 : 32,
              static_cast<std::int32_t>(shape.size()),
              [&](std::int32_t axis) { return shape[axis]; });
}
void add(RowMajor& views, const ffi::RemainingArgs& given) {
    for (std::size_t k = 0; k < given.size(); ++k) add(views, *given.get<ffi::AnyBuffer>(k));
}
void add(RowMajor& views, const ffi::RemainingRets& given) {
    for (std::size_t k = 0; k < given.size(); ++k) add(views, **given.get<ffi::AnyBuffer>(k));
}

template <typename Call>
ffi::Error told(const Call& call) {
    Said said;
    switch (call(said.message())) {
        case D5_OK: return ffi::Error::Success();
        case D5_UNSUPPORTED: return ffi::Error(ffi::ErrorCode::kUnimplemented, said.text());
        default: return ffi::Error(ffi::ErrorCode::kInternal, said.text());
    }
}

/// inputs -> outputs
ffi::Error forward(void* stream, std::int64_t table, std::int64_t made, ffi::RemainingArgs given,
                   ffi::RemainingRets found) {
    const auto* op = reinterpret_cast<const D5Operator*>(table);
    RowMajor inputs(given.size(), op->device), outputs(found.size(), op->device);
    add(inputs, given);
    add(outputs, found);
    return told([&](D5Message message) {
        return op->forward(reinterpret_cast<void*>(made), inputs.data(), outputs.data(), stream,
                           message);
    });
}

/// grads, inputs, outputs -> gradients of the inputs
ffi::Error backward(void* stream, std::int64_t table, std::int64_t made, ffi::RemainingArgs given,
                    ffi::RemainingRets found) {
    const auto* op = reinterpret_cast<const D5Operator*>(table);
    RowMajor read(given.size(), op->device), written(found.size(), op->device);
    add(read, given);
    add(written, found);
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
