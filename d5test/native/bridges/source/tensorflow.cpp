// Native operators as two kernels of TensorFlow's, forward and backward.
//
// Compiled once for each TensorFlow, against its wheel's headers. Which operator is called is an
// attribute of the node: its table, and the operator made for the attributes and the dtype, both as
// addresses. TensorFlow's tensors are row-major.
#include <array>
#include <string>
#include <vector>

#include "d5test/interface.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

struct Operator {
    std::int64_t table = 0, made = 0;

    template <typename Context>
    tensorflow::Status read(Context* context) {
        TF_RETURN_IF_ERROR(context->GetAttr("table", &table));
        return context->GetAttr("made", &made);
    }
    const D5Operator* operator->() const { return reinterpret_cast<const D5Operator*>(table); }
    void* object() const { return reinterpret_cast<void*>(made); }
};

template <typename Call>
tensorflow::Status told(const Call& call) {
    std::array<char, 4096> room{};
    switch (call(D5Message{room.data(), room.size()})) {
        case D5_OK: return tensorflow::OkStatus();
        case D5_UNSUPPORTED: return tensorflow::errors::Unimplemented(room.data());
        default: return tensorflow::errors::Internal(room.data());
    }
}

/// Tensors as the interface has them, row-major.
class Views {
public:
    explicit Views(std::size_t most) : sizes_(most), strides_(most) { views_.reserve(most); }

    void add(const Tensor& tensor) {
        std::vector<std::int64_t> shape;
        for (const auto& side : tensor.shape()) shape.push_back(side.size);
        add(shape, const_cast<char*>(tensor.tensor_data().data()),
            8 * tensorflow::DataTypeSize(tensor.dtype()));
    }
    void add(const std::vector<std::int64_t>& shape, void* data, int bits) {
        auto &sizes = sizes_[views_.size()], &strides = strides_[views_.size()];
        std::int64_t size = 1;
        for (std::size_t axis = shape.size(); axis-- > 0; size *= shape[axis]) {
            sizes[axis] = shape[axis];
            strides[axis] = size;
        }
        D5Tensor one{};
        one.data = data;
        one.device = {D5_CPU, 0};
        one.ndim = static_cast<std::int32_t>(shape.size());
        one.dtype = {2, static_cast<std::uint8_t>(bits), 1};
        one.shape = sizes.data();
        one.strides = strides.data();
        views_.push_back(one);
    }
    D5Tensor* data() { return views_.data(); }

private:
    using Sides = std::array<std::int64_t, D5_MOST_DIMENSIONS>;
    std::vector<Sides> sizes_, strides_;
    std::vector<D5Tensor> views_;
};

/// The outputs' shapes, where the inputs' are known.
tensorflow::Status forward_shapes(InferenceContext* context) {
    Operator op;
    TF_RETURN_IF_ERROR(op.read(context));
    Views inputs(context->num_inputs()), outputs(op->output_count);
    for (int k = 0; k < context->num_inputs(); ++k) {
        const ShapeHandle shape = context->input(k);
        if (!context->FullyDefined(shape)) {
            for (int i = 0; i < op->output_count; ++i)
                context->set_output(i, context->UnknownShape());
            return tensorflow::OkStatus();
        }
        std::vector<std::int64_t> sides;
        for (int axis = 0; axis < context->Rank(shape); ++axis)
            sides.push_back(context->Value(context->Dim(shape, axis)));
        inputs.add(sides, nullptr, 32);
    }
    for (int k = 0; k < op->output_count; ++k) outputs.add({}, nullptr, 32);
    TF_RETURN_IF_ERROR(told([&](D5Message message) {
        return op->infer(op.object(), inputs.data(), outputs.data(), message);
    }));
    for (int k = 0; k < op->output_count; ++k) {
        std::vector<DimensionHandle> sides;
        for (int axis = 0; axis < outputs.data()[k].ndim; ++axis)
            sides.push_back(context->MakeDim(outputs.data()[k].shape[axis]));
        context->set_output(k, context->MakeShape(sides));
    }
    return tensorflow::OkStatus();
}

tensorflow::Status backward_shapes(InferenceContext* context) {
    Operator op;
    TF_RETURN_IF_ERROR(op.read(context));
    for (int k = 0; k < op->input_count; ++k)
        context->set_output(k, context->input(op->output_count + k));
    return tensorflow::OkStatus();
}

class Forward : public OpKernel {
public:
    explicit Forward(OpKernelConstruction* context) : OpKernel(context) {
        OP_REQUIRES_OK(context, op_.read(context));
    }
    void Compute(OpKernelContext* context) override {
        Views inputs(op_->input_count), shapes(op_->output_count), outputs(op_->output_count);
        for (int k = 0; k < op_->input_count; ++k) inputs.add(context->input(k));
        for (int k = 0; k < op_->output_count; ++k) shapes.add({}, nullptr, 32);
        OP_REQUIRES_OK(context, told([&](D5Message message) {
            return op_->infer(op_.object(), inputs.data(), shapes.data(), message);
        }));
        for (int k = 0; k < op_->output_count; ++k) {
            const D5Tensor& one = shapes.data()[k];
            TensorShape shape;
            for (int axis = 0; axis < one.ndim; ++axis) shape.AddDim(one.shape[axis]);
            Tensor* output = nullptr;
            OP_REQUIRES_OK(context, context->allocate_output(k, shape, &output));
            outputs.add(*output);
        }
        OP_REQUIRES_OK(context, told([&](D5Message message) {
            return op_->forward(op_.object(), inputs.data(), outputs.data(), nullptr, message);
        }));
    }

private:
    Operator op_;
};

class Backward : public OpKernel {
public:
    explicit Backward(OpKernelConstruction* context) : OpKernel(context) {
        OP_REQUIRES_OK(context, op_.read(context));
    }
    void Compute(OpKernelContext* context) override {
        const int n = op_->input_count, m = op_->output_count;
        Views read(n + 2 * m), written(n);
        for (int k = 0; k < n + 2 * m; ++k) read.add(context->input(k));
        for (int k = 0; k < n; ++k) {
            Tensor* dx = nullptr;
            OP_REQUIRES_OK(context,
                           context->allocate_output(k, context->input(m + k).shape(), &dx));
            written.add(*dx);
        }
        OP_REQUIRES_OK(context, told([&](D5Message message) {
            const D5Tensor* grads = read.data();
            return op_->backward(op_.object(), grads, grads + m, grads + m + n, written.data(),
                                 nullptr, message);
        }));
    }

private:
    Operator op_;
};

REGISTER_OP("D5testForward")
    .Input("inputs: N * T").Output("outputs: M * T")
    .Attr("N: int >= 1").Attr("M: int >= 1").Attr("T: {float, double}")
    .Attr("table: int").Attr("made: int")
    .SetShapeFn(forward_shapes);

REGISTER_OP("D5testBackward")
    .Input("grads: M * T").Input("inputs: N * T").Input("outputs: M * T")
    .Output("input_grads: N * T")
    .Attr("N: int >= 1").Attr("M: int >= 1").Attr("T: {float, double}")
    .Attr("table: int").Attr("made: int")
    .SetShapeFn(backward_shapes);

REGISTER_KERNEL_BUILDER(Name("D5testForward").Device(tensorflow::DEVICE_CPU), Forward);
REGISTER_KERNEL_BUILDER(Name("D5testBackward").Device(tensorflow::DEVICE_CPU), Backward);

}  // namespace
