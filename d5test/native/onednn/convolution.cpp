// Convolutions over one, two or three spatial axes, and their adjoints, by oneDNN: Conv and
// ConvTranspose of ONNX.
#include "windows_of.h"

using namespace d5test;
using namespace onednn;
using kernels::List;
using kernels::Windows;

namespace {

/// What describes a convolution to oneDNN, which counts dilations from zero.
struct Described {
    Dims x, w, b, y, strides, dilations, begin, end;
    Layout filters;  // ours
};

Described described(const Windows& windows, const Shape& x, const Shape& y, const Dims& w,
                    const Layout& filters, const Shape& b) {
    const std::size_t axes = x.size() - 2;
    return {x, w, b, y, last(windows.stride, axes), last(windows.dilation, axes, 1),
            last(windows.begin, axes), last(fitted(windows), axes), filters};
}

/// Both directions are the same but for the names of oneDNN's classes and kinds.
template <typename Forward, typename Data, typename Weights, dnnl::algorithm direct>
struct Direction {
    using Chosen = typename Forward::primitive_desc;

    static Chosen chosen(const Described& d) {
        const auto x = any(d.x), w = any(d.w), y = any(d.y);
        if (d.b.empty())
            return Chosen({training, direct, x, w, y, d.strides, d.dilations, d.begin, d.end},
                          cpu());
        return Chosen({training, direct, x, w, row_major(d.b), y, d.strides, d.dilations, d.begin,
                       d.end}, cpu());
    }
    static Program forward(const Described& d) {
        std::vector<Argument> arguments{{DNNL_ARG_SRC, row_major(d.x)},
                                        {DNNL_ARG_WEIGHTS, d.filters},
                                        {DNNL_ARG_DST, row_major(d.y), true}};
        if (!d.b.empty()) arguments.push_back({DNNL_ARG_BIAS, row_major(d.b)});
        return {chosen(d), arguments};
    }
    static Program data(const Described& d) {
        const typename Data::primitive_desc found(
            {direct, any(d.x), any(d.w), any(d.y), d.strides, d.dilations, d.begin, d.end}, cpu(),
            chosen(d));
        return {found, {{DNNL_ARG_DIFF_DST, row_major(d.y)}, {DNNL_ARG_WEIGHTS, d.filters},
                        {DNNL_ARG_DIFF_SRC, row_major(d.x), true}}};
    }
    static Program weights(const Described& d) {
        std::vector<Argument> arguments{{DNNL_ARG_SRC, row_major(d.x)},
                                        {DNNL_ARG_DIFF_DST, row_major(d.y)},
                                        {DNNL_ARG_DIFF_WEIGHTS, d.filters, true}};
        const auto x = any(d.x), w = any(d.w), y = any(d.y);
        using Found = typename Weights::primitive_desc;
        if (d.b.empty())
            return {Found({direct, x, w, y, d.strides, d.dilations, d.begin, d.end}, cpu(),
                          chosen(d)), arguments};
        arguments.push_back({DNNL_ARG_DIFF_BIAS, row_major(d.b), true});
        return {Found({direct, x, w, row_major(d.b), y, d.strides, d.dilations, d.begin, d.end},
                      cpu(), chosen(d)), arguments};
    }
};

/// What Conv and ConvTranspose share; they describe a call by the shapes of x, w and b.
template <typename T, typename Kind>
class Convolving : public CustomOperator<T> {
    Programs forwards, datas, weights;

    virtual Described described_by(const Shapes& in) const = 0;

    static Shapes shapes_of(const Inputs<T>& inputs) {
        return {inputs[0].shape(), inputs[1].shape(),
                inputs[2].present() ? inputs[2].shape() : Shape{}};
    }

protected:
    const kernels::Steps steps;
    const std::int64_t group;

    explicit Convolving(const Attributes& given) : steps(given), group(given.integer("group")) {
        require_float<T>();
    }

public:
    Shapes shapes(const Shapes& in) const override {
        require(in[0].size() == in[1].size() && in[0].size() > 2, "x and w have other axes");
        const auto d = described_by(in);
        require(in[2].empty() || in[2] == Shape{d.y[1]}, "there is one bias for each filter");
        return {d.y};
    }

    void forward(const Inputs<T>& inputs, const Outputs<T>& outputs) override {
        const Shapes in = shapes_of(inputs);
        if (nothing(outputs[0].shape(), in[0], in[1])) return;
        std::vector<const void*> tensors{inputs[0].data(), inputs[1].data(), outputs[0].data()};
        if (inputs[2].present()) tensors.push_back(inputs[2].data());
        forwards.run(in, tensors, [&] { return Kind::forward(described_by(in)); });
    }

    void backward(const Inputs<T>& grads, const Inputs<T>& inputs, const Inputs<T>&,
                  const Outputs<T>& input_grads) override {
        const Shapes in = shapes_of(inputs);
        const Shape dy = grads[0].shape();
        if (!nothing(in[0], in[1], dy))
            datas.run(in, {grads[0].data(), inputs[1].data(), input_grads[0].data()},
                      [&] { return Kind::data(described_by(in)); });
        if (nothing(in[1], in[0], dy)) return;
        std::vector<const void*> tensors{inputs[0].data(), grads[0].data(), input_grads[1].data()};
        if (inputs[2].present()) tensors.push_back(input_grads[2].data());
        weights.run(in, tensors, [&] { return Kind::weights(described_by(in)); });
    }
};

using Convolution = Direction<dnnl::convolution_forward, dnnl::convolution_backward_data,
                              dnnl::convolution_backward_weights,
                              dnnl::algorithm::convolution_direct>;
using Deconvolution = Direction<dnnl::deconvolution_forward, dnnl::deconvolution_backward_data,
                                dnnl::deconvolution_backward_weights,
                                dnnl::algorithm::deconvolution_direct>;

}  // namespace

/// y[n, m, o] = b[m] + sum over c, k of x[n, c, o stride + k dilation - pad] w[m, c, k].
template <typename T>
class Conv : public Convolving<T, Convolution> {
    Described described_by(const Shapes& in) const override {
        const Shape &x = in[0], &w = in[1];
        const auto group = this->group;
        require(group > 0 && w[0] % group == 0 && x[1] == w[1] * group,
                "the channels of x and w do not fit");
        const auto windows =
            Windows::on_input(kernels::spatial(x), kernels::spatial(w), this->steps);
        Dims filters(w);
        if (group > 1) {
            filters[0] /= group;
            filters.insert(filters.begin(), group);
        }
        return described(windows, x, windows.shape(x[0], w[0], x.size() - 2), filters,
                         row_major(filters), in[2]);
    }

public:
    explicit Conv(const Attributes& given) : Convolving<T, Convolution>(given) {}
};
D5TEST_OPERATOR(Conv)
    .input("x", "*").input("w", "*").input("b", "m").optional().output("y").unread()
    .attribute("strides", List{}).attribute("dilations", List{}).attribute("pads", List{})
    .attribute("auto_pad", "NOTSET").attribute("group", 1).attribute("kernel_shape", List{})
    .contiguous();

/// y[n, m, i stride + k dilation - pad] += x[n, c, i] w[c, m, k], and b[m] is added.
template <typename T>
class ConvTranspose : public Convolving<T, Deconvolution> {
    const List output_padding, output_shape;

    Described described_by(const Shapes& in) const override {
        const Shape &x = in[0], &w = in[1];
        const auto group = this->group;
        require(group > 0 && x[1] == w[0] && x[1] % group == 0,
                "the channels of x and w do not fit");
        const auto windows = Windows::to_output(kernels::spatial(x), kernels::spatial(w),
                                                this->steps, output_padding, output_shape);
        Shape y{x[0], w[1] * group};
        y.insert(y.end(), windows.size.end() - static_cast<std::ptrdiff_t>(x.size() - 2),
                 windows.size.end());
        // (group, c, m, *kernel) in memory; oneDNN names the axes (group, m, c, *kernel)
        Dims filters{group, w[0] / group, w[1]};
        filters.insert(filters.end(), w.begin() + 2, w.end());
        Layout ours = row_major(filters);
        std::vector<int> turned(filters.size());
        for (std::size_t k = 0; k < turned.size(); ++k) turned[k] = static_cast<int>(k);
        std::swap(turned[1], turned[2]);
        ours = ours.permute_axes(turned);
        std::swap(filters[1], filters[2]);
        if (group == 1) {
            filters.erase(filters.begin());
            ours = ours.reshape(filters);
        }
        return described(windows, x, y, filters, ours, in[2]);
    }

public:
    explicit ConvTranspose(const Attributes& given)
        : Convolving<T, Deconvolution>(given), output_padding(given.integers("output_padding")),
          output_shape(given.integers("output_shape")) {}
};
D5TEST_OPERATOR(ConvTranspose)
    .input("x", "*").input("w", "*").input("b", "m").optional().output("y").unread()
    .attribute("strides", List{}).attribute("dilations", List{}).attribute("pads", List{})
    .attribute("output_padding", List{}).attribute("output_shape", List{})
    .attribute("auto_pad", "NOTSET").attribute("group", 1).attribute("kernel_shape", List{})
    .contiguous();
