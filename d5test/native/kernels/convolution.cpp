// Convolutions over one, two or three spatial axes, and their adjoints: Conv and ConvTranspose of
// ONNX.
#include "columns.h"

using namespace d5test;
using kernels::Convolution;
using kernels::List;
using kernels::Windows;

/// y[n, m, o] = b[m] + sum over c, k of x[n, c, o stride + k dilation - pad] w[m, c, k].
template <typename T>
class Conv : public CustomOperator<T> {
    const kernels::Steps steps;
    const std::int64_t group;

    Convolution<T> on(const Shape& x, const Shape& w) const {
        require(x.size() == w.size() && x.size() > 2, "x and w have other axes");
        require(group > 0 && w[0] % group == 0 && x[1] == w[1] * group,
                "the channels of x and w do not fit");
        return {Windows::on_input(kernels::spatial(x), kernels::spatial(w), steps), group, x[0],
                x[1], w[0]};
    }

public:
    explicit Conv(const Attributes& given) : steps(given), group(given.integer("group")) {}

    Shapes shapes(const Shapes& in) const override {
        require(in[2].empty() || in[2] == Shape{in[1][0]}, "there is one bias for each filter");
        return {on(in[0], in[1]).windows.shape(in[0][0], in[1][0], in[0].size() - 2)};
    }

    void forward(const Inputs<T>& inputs, const Outputs<T>& outputs) override {
        const auto &x = inputs[0], &w = inputs[1];
        on(x.shape(), w.shape()).forward(x.data(), w.data(), outputs[0].data());
        kernels::add_bias(outputs[0], inputs[2]);
    }

    void backward(const Inputs<T>& grads, const Inputs<T>& inputs, const Inputs<T>&,
                  const Outputs<T>& input_grads) override {
        const auto &x = inputs[0], &w = inputs[1], &dy = grads[0];
        const auto convolution = on(x.shape(), w.shape());
        convolution.adjoint(dy.data(), w.data(), input_grads[0].data());
        convolution.filter_gradient(x.data(), dy.data(), input_grads[1].data());
        kernels::bias_gradient(dy, input_grads[2]);
    }
};
D5TEST_OPERATOR(Conv)
    .input("x", "*").input("w", "*").input("b", "m").optional().output("y").unread()
    .attribute("strides", List{}).attribute("dilations", List{}).attribute("pads", List{})
    .attribute("auto_pad", "NOTSET").attribute("group", 1).attribute("kernel_shape", List{})
    .contiguous();

/// y[n, m, i stride + k dilation - pad] += x[n, c, i] w[c, m, k], and b[m] is added.
template <typename T>
class ConvTranspose : public CustomOperator<T> {
    const kernels::Steps steps;
    const std::int64_t group;
    const List output_padding, output_shape;

    /// The convolution from y to x whose adjoint this is.
    Convolution<T> to(const Shape& x, const Shape& w) const {
        require(x.size() == w.size() && x.size() > 2, "x and w have other axes");
        require(group > 0 && x[1] == w[0] && x[1] % group == 0,
                "the channels of x and w do not fit");
        const auto windows = Windows::to_output(kernels::spatial(x), kernels::spatial(w), steps,
                                                output_padding, output_shape);
        return {windows, group, x[0], w[1] * group, w[0]};
    }

public:
    explicit ConvTranspose(const Attributes& given)
        : steps(given), group(given.integer("group")),
          output_padding(given.integers("output_padding")),
          output_shape(given.integers("output_shape")) {}

    Shapes shapes(const Shapes& in) const override {
        const auto convolution = to(in[0], in[1]);
        require(in[2].empty() || in[2] == Shape{convolution.c},
                "there is one bias for each channel of the output");
        Shape y{in[0][0], convolution.c};
        const auto& size = convolution.windows.size;
        y.insert(y.end(), size.end() - (in[0].size() - 2), size.end());
        return {y};
    }

    void forward(const Inputs<T>& inputs, const Outputs<T>& outputs) override {
        const auto &x = inputs[0], &w = inputs[1];
        to(x.shape(), w.shape()).adjoint(x.data(), w.data(), outputs[0].data());
        kernels::add_bias(outputs[0], inputs[2]);
    }

    void backward(const Inputs<T>& grads, const Inputs<T>& inputs, const Inputs<T>&,
                  const Outputs<T>& input_grads) override {
        const auto &x = inputs[0], &w = inputs[1], &dy = grads[0];
        const auto convolution = to(x.shape(), w.shape());
        convolution.forward(dy.data(), w.data(), input_grads[0].data());
        convolution.filter_gradient(dy.data(), x.data(), input_grads[1].data());
        kernels::bias_gradient(dy, input_grads[2]);
    }
};
D5TEST_OPERATOR(ConvTranspose)
    .input("x", "*").input("w", "*").input("b", "m").optional().output("y").unread()
    .attribute("strides", List{}).attribute("dilations", List{}).attribute("pads", List{})
    .attribute("output_padding", List{}).attribute("output_shape", List{})
    .attribute("auto_pad", "NOTSET").attribute("group", 1).attribute("kernel_shape", List{})
    .contiguous();
