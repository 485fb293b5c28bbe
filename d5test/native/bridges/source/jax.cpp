// Native operators as calls of XLA's foreign function interface.
//
// Compiled once for each jaxlib. Which operator is called is an attribute of the call, the address of
// what it is bound to. Two calls serve all.
#include "row_major.h"
#include "xla/ffi/api/ffi.h"

namespace {

namespace ffi = xla::ffi;
using bridge::Bound;
using bridge::RowMajor;
using bridge::Said;

D5Type type_of(ffi::DataType type) {
    switch (type) {
        case ffi::DataType::F64: return {D5_FLOAT, 64, 1};
        case ffi::DataType::S64: return {D5_INT, 64, 1};
        case ffi::DataType::PRED: return {D5_BOOL, 8, 1};
        default: return {D5_FLOAT, 32, 1};
    }
}

template <typename Buffer>
void add(RowMajor& views, const Buffer& buffer) {
    const auto shape = buffer.dimensions();
    views.add(buffer.untyped_data(), type_of(buffer.element_type()),
              static_cast<std::int32_t>(shape.size()),
              [&](std::int32_t axis) { return shape[axis]; });
}

/// The buffers of a call, one after the other.
class Buffers {
public:
    Buffers(const ffi::RemainingArgs& given, const ffi::RemainingRets& found)
        : given_(given), found_(found) {}

    void read(RowMajor& views, bool there) {
        there ? add(views, *given_.get<ffi::AnyBuffer>(read_++)) : views.add_absent();
    }
    void write(RowMajor& views, bool there) {
        there ? add(views, **found_.get<ffi::AnyBuffer>(written_++)) : views.add_absent();
    }

private:
    const ffi::RemainingArgs& given_;
    const ffi::RemainingRets& found_;
    std::size_t read_ = 0, written_ = 0;
};

template <typename Call>
ffi::Error told(const Call& call) {
    Said said;
    switch (call(said.message())) {
        case D5_OK: return ffi::Error::Success();
        case D5_UNSUPPORTED: return ffi::Error(ffi::ErrorCode::kUnimplemented, said.text());
        default: return ffi::Error(ffi::ErrorCode::kInternal, said.text());
    }
}

/// inputs -> outputs, those that are there
ffi::Error forward(void* stream, std::int64_t address, ffi::RemainingArgs given,
                   ffi::RemainingRets found) {
    const Bound& bound = Bound::at(address);
    const D5Operator& op = *bound.table;
    RowMajor inputs(op.input_count, op.device), outputs(op.output_count, op.device);
    Buffers buffers(given, found);
    for (std::int32_t k = 0; k < op.input_count; ++k) buffers.read(inputs, bound.has_input(k));
    for (std::int32_t k = 0; k < op.output_count; ++k)
        buffers.write(outputs, bound.has_output(k));
    return told([&](D5Message message) {
        return op.forward(bound.made, inputs.data(), outputs.data(), stream, message);
    });
}

/// grads, inputs, outputs -> gradients of the inputs, those that are there
ffi::Error backward(void* stream, std::int64_t address, ffi::RemainingArgs given,
                    ffi::RemainingRets found) {
    const Bound& bound = Bound::at(address);
    const D5Operator& op = *bound.table;
    const std::int32_t n = op.input_count, m = op.output_count;
    RowMajor read(n + 2 * m, op.device), written(n, op.device);
    const D5Tensor *grads = read.data(), *inputs = grads + m, *outputs = inputs + n;
    Buffers buffers(given, found);
    for (std::int32_t k = 0; k < m; ++k) buffers.read(read, bound.has_grad(k));
    for (std::int32_t k = 0; k < n; ++k) buffers.read(read, bound.has_input(k));
    for (std::int32_t k = 0; k < m; ++k) buffers.read(read, bound.reads_output(k));
    for (std::int32_t k = 0; k < n; ++k) buffers.write(written, bound.has_slope(k));
    return told([&](D5Message message) {
        return op.backward(bound.made, grads, inputs, outputs, written.data(), stream, message);
    });
}

ffi::Error forward_on_host(std::int64_t address, ffi::RemainingArgs given,
                           ffi::RemainingRets found) {
    return forward(nullptr, address, given, found);
}

ffi::Error backward_on_host(std::int64_t address, ffi::RemainingArgs given,
                            ffi::RemainingRets found) {
    return backward(nullptr, address, given, found);
}

auto on_host() {
    return ffi::Ffi::Bind().Attr<std::int64_t>("bound").RemainingArgs().RemainingRets();
}

auto on_cuda() {
    return ffi::Ffi::Bind().Ctx<ffi::PlatformStream<void*>>()
        .Attr<std::int64_t>("bound").RemainingArgs().RemainingRets();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(d5test_jax_forward_cpu, forward_on_host, on_host());
XLA_FFI_DEFINE_HANDLER_SYMBOL(d5test_jax_backward_cpu, backward_on_host, on_host());
XLA_FFI_DEFINE_HANDLER_SYMBOL(d5test_jax_forward_CUDA, forward, on_cuda());
XLA_FFI_DEFINE_HANDLER_SYMBOL(d5test_jax_backward_CUDA, backward, on_cuda());
