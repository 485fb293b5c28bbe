// Native operators as kernels of TensorFlow's, forward and backward.
//
// Compiled once for each TensorFlow, against its wheel's headers. Which operator is called is an
// attribute of the node, the address of what it is bound to. TensorFlow's tensors are row-major.
#include <vector>

#include "row_major.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace {

using bridge::Bound;
using bridge::RowMajor;
using bridge::Said;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

/// What a node is bound to.
template <typename Context>
tensorflow::Status read(Context* context, const Bound** bound) {
    std::int64_t address = 0;
    TF_RETURN_IF_ERROR(context->GetAttr("bound", &address));
    *bound = &Bound::at(address);
    return tensorflow::OkStatus();
}

template <typename Call>
tensorflow::Status told(const Call& call) {
    Said said;
    switch (call(said.message())) {
        case D5_OK: return tensorflow::OkStatus();
        case D5_UNSUPPORTED: return tensorflow::errors::Unimplemented(said.text());
        default: return tensorflow::errors::Internal(said.text());
    }
}

D5Type type_of(tensorflow::DataType type) {
    switch (type) {
        case tensorflow::DT_DOUBLE: return {D5_FLOAT, 64, 1};
        case tensorflow::DT_INT64: return {D5_INT, 64, 1};
        case tensorflow::DT_BOOL: return {D5_BOOL, 8, 1};
        default: return {D5_FLOAT, 32, 1};
    }
}

void add(RowMajor& views, const Tensor& tensor) {
    views.add(const_cast<char*>(tensor.tensor_data().data()), type_of(tensor.dtype()),
              tensor.dims(), [&](std::int32_t axis) { return tensor.dim_size(axis); });
}

/// The outputs' shapes, where the inputs' are known.
tensorflow::Status forward_shapes(InferenceContext* context) {
    const Bound* bound = nullptr;
    TF_RETURN_IF_ERROR(read(context, &bound));
    const D5Operator& op = *bound->table;
    RowMajor inputs(op.input_count, D5_CPU), outputs(op.output_count, D5_CPU);
    for (int k = 0, given = 0; k < op.input_count; ++k) {
        if (!bound->has_input(k)) {
            inputs.add_absent();
            continue;
        }
        const ShapeHandle shape = context->input(given++);
        if (!context->FullyDefined(shape)) {
            for (int i = 0; i < context->num_outputs(); ++i)
                context->set_output(i, context->UnknownShape());
            return tensorflow::OkStatus();
        }
        inputs.add(nullptr, {}, context->Rank(shape), [&](std::int32_t axis) {
            return context->Value(context->Dim(shape, axis));
        });
    }
    for (int k = 0; k < op.output_count; ++k) outputs.add_unknown();
    TF_RETURN_IF_ERROR(told([&](D5Message message) {
        return op.infer(bound->made, inputs.data(), outputs.data(), message);
    }));
    for (int k = 0; k < context->num_outputs(); ++k) {
        std::vector<DimensionHandle> sides;
        for (int axis = 0; axis < outputs.data()[k].ndim; ++axis)
            sides.push_back(context->MakeDim(outputs.data()[k].shape[axis]));
        context->set_output(k, context->MakeShape(sides));
    }
    return tensorflow::OkStatus();
}

/// A gradient has the shape of its input; the gradients that come in stand before the inputs.
tensorflow::Status backward_shapes(InferenceContext* context) {
    const Bound* bound = nullptr;
    TF_RETURN_IF_ERROR(read(context, &bound));
    const D5Operator& op = *bound->table;
    int given = 0, found = 0;
    for (int k = 0; k < op.output_count; ++k) given += bound->has_grad(k);
    for (int k = 0; k < op.input_count; given += bound->has_input(k++))
        if (bound->has_slope(k)) context->set_output(found++, context->input(given));
    return tensorflow::OkStatus();
}

/// inputs -> outputs, those that are there
class Forward : public OpKernel {
public:
    explicit Forward(OpKernelConstruction* context) : OpKernel(context) {
        OP_REQUIRES_OK(context, read(context, &bound_));
    }
    void Compute(OpKernelContext* context) override {
        const D5Operator& op = *bound_->table;
        const int n = op.input_count, m = op.output_count;
        RowMajor inputs(n, D5_CPU), shapes(m, D5_CPU), outputs(m, D5_CPU);
        for (int k = 0, given = 0; k < n; ++k)
            bound_->has_input(k) ? add(inputs, context->input(given++)) : inputs.add_absent();
        for (int k = 0; k < m; ++k) shapes.add_unknown();
        OP_REQUIRES_OK(context, told([&](D5Message message) {
            return op.infer(bound_->made, inputs.data(), shapes.data(), message);
        }));
        for (int k = 0; k < m; ++k) {
            const D5Tensor& one = shapes.data()[k];
            OP_REQUIRES(context, bound_->has_output(k) == (one.ndim >= 0),
                        tensorflow::errors::Internal(op.name, ": other outputs are there than ",
                                                     "when its graph was made"));
            if (one.ndim < 0) {
                outputs.add_absent();
                continue;
            }
            TensorShape shape;
            for (int axis = 0; axis < one.ndim; ++axis) shape.AddDim(one.shape[axis]);
            Tensor* output = nullptr;
            OP_REQUIRES_OK(context, context->allocate_output(k, shape, &output));
            add(outputs, *output);
        }
        OP_REQUIRES_OK(context, told([&](D5Message message) {
            return op.forward(bound_->made, inputs.data(), outputs.data(), nullptr, message);
        }));
    }

private:
    const Bound* bound_ = nullptr;
};

/// grads, inputs, outputs -> gradients of the inputs, those that are there
class Backward : public OpKernel {
public:
    explicit Backward(OpKernelConstruction* context) : OpKernel(context) {
        OP_REQUIRES_OK(context, read(context, &bound_));
    }
    void Compute(OpKernelContext* context) override {
        const D5Operator& op = *bound_->table;
        const int n = op.input_count, m = op.output_count;
        RowMajor read(n + 2 * m, D5_CPU), written(n, D5_CPU);
        int given = 0, found = 0;
        const auto next = [&](bool there) {
            there ? add(read, context->input(given++)) : read.add_absent();
        };
        for (int k = 0; k < m; ++k) next(bound_->has_grad(k));
        const int inputs = given;
        for (int k = 0; k < n; ++k) next(bound_->has_input(k));
        for (int k = 0; k < m; ++k) next(bound_->reads_output(k));
        for (int k = 0, at = inputs; k < n; at += bound_->has_input(k++)) {
            if (!bound_->has_slope(k)) {
                written.add_absent();
                continue;
            }
            Tensor* dx = nullptr;
            OP_REQUIRES_OK(context,
                           context->allocate_output(found++, context->input(at).shape(), &dx));
            add(written, *dx);
        }
        OP_REQUIRES_OK(context, told([&](D5Message message) {
            const D5Tensor* grads = read.data();
            return op.backward(bound_->made, grads, grads + m, grads + m + n, written.data(),
                               nullptr, message);
        }));
    }

private:
    const Bound* bound_ = nullptr;
};

REGISTER_OP("D5testForward")
    .Input("inputs: N * T").Output("outputs: M * T")
    .Attr("N: int >= 1").Attr("M: int >= 1").Attr("T: {float, double}")
    .Attr("bound: int")
    .SetShapeFn(forward_shapes);

// Of one output, as nearly all are: a list of one takes longer to be made and read.
REGISTER_OP("D5testForwardOne")
    .Input("inputs: N * T").Output("output: T")
    .Attr("N: int >= 1").Attr("T: {float, double}")
    .Attr("bound: int")
    .SetShapeFn(forward_shapes);

REGISTER_OP("D5testBackward")
    .Input("grads: M * T").Input("inputs: N * T").Input("outputs: K * T")
    .Output("input_grads: N * T")
    .Attr("N: int >= 1").Attr("M: int >= 1").Attr("K: int >= 0").Attr("T: {float, double}")
    .Attr("bound: int")
    .SetShapeFn(backward_shapes);

// Of operators with something optional, integers, a mask or constant: what is there, each of its type.
REGISTER_OP("D5testForwardMixed")
    .Input("inputs: Tin").Output("outputs: Tout")
    .Attr("Tin: list({float, double, int64, bool}) >= 1")
    .Attr("Tout: list({float, double, int64}) >= 1")
    .Attr("bound: int")
    .SetShapeFn(forward_shapes);

REGISTER_OP("D5testBackwardMixed")
    .Input("given: Tin").Output("input_grads: Tout")
    .Attr("Tin: list({float, double, int64, bool}) >= 1")
    .Attr("Tout: list({float, double}) >= 1")
    .Attr("bound: int")
    .SetShapeFn(backward_shapes);

REGISTER_KERNEL_BUILDER(Name("D5testForward").Device(tensorflow::DEVICE_CPU), Forward);
REGISTER_KERNEL_BUILDER(Name("D5testForwardOne").Device(tensorflow::DEVICE_CPU), Forward);
REGISTER_KERNEL_BUILDER(Name("D5testBackward").Device(tensorflow::DEVICE_CPU), Backward);
REGISTER_KERNEL_BUILDER(Name("D5testForwardMixed").Device(tensorflow::DEVICE_CPU), Forward);
REGISTER_KERNEL_BUILDER(Name("D5testBackwardMixed").Device(tensorflow::DEVICE_CPU), Backward);

}  // namespace
