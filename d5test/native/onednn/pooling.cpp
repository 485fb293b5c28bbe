// MaxPool, AveragePool and GlobalAveragePool of ONNX, by oneDNN.
#include "windows_of.h"

using namespace d5test;
using namespace onednn;
using kernels::List;
using kernels::Windows;

namespace {

/// A pooling as oneDNN is told of it.
struct Described {
    dnnl::algorithm algorithm;
    Dims x, y, strides, kernel, dilations, begin, end;

    dnnl::pooling_v2_forward::primitive_desc forward() const {
        return {{training, algorithm, row_major(x), row_major(y), strides, kernel, dilations, begin,
                 end}, cpu()};
    }
    dnnl::pooling_v2_backward::primitive_desc backward() const {
        return {{algorithm, row_major(x), row_major(y), strides, kernel, dilations, begin, end},
                cpu(), forward()};
    }
};

/// Both directions, and what the first notes for the second: where each maximum was.
struct Ready {
    explicit Ready(const Described& d)
        : note(noted(d)), y(volume(d.y)),
          forward(d.forward(), with_note({{DNNL_ARG_SRC, row_major(d.x)},
                                          {DNNL_ARG_DST, row_major(d.y), true}})),
          backward(d.backward(), with_note({{DNNL_ARG_DIFF_DST, row_major(d.y)},
                                            {DNNL_ARG_DIFF_SRC, row_major(d.x), true}})) {}

    static dnnl::memory noted(const Described& d) {
        const auto layout = d.forward().workspace_desc();
        return layout.get_size() ? dnnl::memory(layout, cpu()) : dnnl::memory();
    }
    std::vector<Argument> with_note(std::vector<Argument> arguments) const {
        if (note) arguments.push_back({DNNL_ARG_WORKSPACE, {}, true, note});
        return arguments;
    }

    dnnl::memory note;
    std::vector<float> y;
    Program forward, backward;
};

/// What is derived says how x: (n, c, *size) is pooled.
template <typename T>
class Pooling : public CustomOperator<T> {
    ByShapes<Ready> known;

    virtual Described described(const Shape& x) const = 0;

protected:
    Pooling() { require_float<T>(); }

public:
    void forward(const Inputs<T>& inputs, const Outputs<T>& outputs) override {
        const Shape x = inputs[0].shape();
        if (nothing(outputs[0].shape(), x)) return;
        known.with({x}, [&] { return Ready(described(x)); }, [&](Ready& ready) {
            ready.forward.run({inputs[0].data(), outputs[0].data()});
        });
    }

    void backward(const Inputs<T>& grads, const Inputs<T>& inputs, const Inputs<T>&,
                  const Outputs<T>& input_grads) override {
        const Shape x = inputs[0].shape();
        if (nothing(x, grads[0].shape())) return;
        known.with({x}, [&] { return Ready(described(x)); }, [&](Ready& ready) {
            if (ready.note) ready.forward.run({inputs[0].data(), ready.y.data()});
            ready.backward.run({grads[0].data(), input_grads[0].data()});
        });
    }
};

/// Windows that the attributes say.
template <typename T>
class Windowed : public Pooling<T> {
    const kernels::Steps steps;
    const List kernel;
    const bool ceil;

    Windows windows(const Shape& x) const {
        return Windows::on_input(kernels::spatial(x), kernel, steps, ceil);
    }
    virtual dnnl::algorithm algorithm(const Windows&) const = 0;

    Described described(const Shape& x) const override {
        const auto w = windows(x);
        const std::size_t axes = x.size() - 2;
        for (int i = 0; i < 3; ++i)
            if (w.at(i, 0, w.kernel[i] - 1) < 0 || w.at(i, w.out[i] - 1, 0) >= w.size[i])
                throw Unsupported("oneDNN has no window that is padding alone");
        return {algorithm(w), x, w.shape(x[0], x[1], axes), last(w.stride, axes),
                last(w.kernel, axes), last(w.dilation, axes, 1), last(w.begin, axes),
                last(fitted(w), axes)};
    }

protected:
    explicit Windowed(const Attributes& given)
        : steps(given), kernel(given.integers("kernel_shape")), ceil(given.integer("ceil_mode")) {}

public:
    Shapes shapes(const Shapes& in) const override {
        const Shape& x = in[0];
        return {windows(x).shape(x[0], x[1], x.size() - 2)};
    }
};

}  // namespace

/// The largest element under each window. oneDNN counts within windows: there are no indices.
template <typename T>
class MaxPool : public Windowed<T> {
    dnnl::algorithm algorithm(const Windows&) const override {
        return dnnl::algorithm::pooling_max;
    }

public:
    explicit MaxPool(const Attributes& given) : Windowed<T>(given) {}
};
D5TEST_OPERATOR(MaxPool)
    .input("x", "*").output("y").unread()
    .attribute("kernel_shape", List{}).attribute("strides", List{})
    .attribute("dilations", List{}).attribute("pads", List{}).attribute("auto_pad", "NOTSET")
    .attribute("ceil_mode", 0).attribute("storage_order", 0).contiguous();

/// The mean under each window; with `count_include_pad` of the padding, too, which is zero.
template <typename T>
class AveragePool : public Windowed<T> {
    const bool padded;

    dnnl::algorithm algorithm(const Windows& w) const override {
        if (!padded) return dnnl::algorithm::pooling_avg_exclude_padding;
        const auto end = fitted(w);
        for (int i = 0; i < 3; ++i)
            if (end[i] > w.end[i])
                throw Unsupported("oneDNN counts what lies beyond the padding, too (ceil_mode)");
        return dnnl::algorithm::pooling_avg_include_padding;
    }

public:
    explicit AveragePool(const Attributes& given)
        : Windowed<T>(given), padded(given.integer("count_include_pad")) {}
};
D5TEST_OPERATOR(AveragePool)
    .input("x", "*").output("y").unread()
    .attribute("kernel_shape", List{}).attribute("strides", List{})
    .attribute("dilations", List{}).attribute("pads", List{}).attribute("auto_pad", "NOTSET")
    .attribute("ceil_mode", 0).attribute("count_include_pad", 0).contiguous();

/// The mean of each channel. One window: (n, c, *size) is (n, c, 1, elements).
template <typename T>
class GlobalAveragePool : public Pooling<T> {
    Described described(const Shape& x) const override {
        const std::int64_t plane = volume(x) / (x[0] * x[1]);
        return {dnnl::algorithm::pooling_avg_exclude_padding, {x[0], x[1], 1, plane},
                {x[0], x[1], 1, 1}, {1, 1}, {1, plane}, {0, 0}, {0, 0}, {0, 0}};
    }

public:
    Shapes shapes(const Shapes& in) const override {
        require(in[0].size() > 1, "x has a batch and channels");
        Shape y(in[0].size(), 1);
        std::copy_n(in[0].begin(), 2, y.begin());
        return {y};
    }
};
D5TEST_OPERATOR(GlobalAveragePool).input("x", "*").output("y").unread().contiguous();
