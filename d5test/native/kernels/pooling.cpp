// One number for each window of each channel: MaxPool, AveragePool and GlobalAveragePool of ONNX.
#include <cmath>

#include "windows.h"

using namespace d5test;
using kernels::List;
using kernels::Sides;
using kernels::Windows;
using kernels::volume;

namespace {

/// The place of a window or an element among others, from its number in row-major order.
Sides place(std::int64_t number, const Sides& sizes) {
    return {number / (sizes[1] * sizes[2]), number / sizes[2] % sizes[1], number % sizes[2]};
}

/// The taps of a window along an axis that lie between two bounds: the first, and one behind.
std::pair<std::int64_t, std::int64_t> taps(const Windows& w, int axis, std::int64_t o,
                                           std::int64_t low, std::int64_t high) {
    const std::int64_t begin = w.at(axis, o, 0), step = w.dilation[axis];
    const std::int64_t first = begin < low ? (low - begin + step - 1) / step : 0;
    const std::int64_t last = high <= begin ? 0 : (high - begin + step - 1) / step;
    return {first, std::min(last, w.kernel[axis])};
}

/// Call `body(element)` for each element under the o-th window, by its position in the channel.
template <typename Body>
void each_element(const Windows& w, std::int64_t o, const Body& body) {
    const Sides at = place(o, w.out);
    std::pair<std::int64_t, std::int64_t> range[3];
    for (int i = 0; i < 3; ++i) range[i] = taps(w, i, at[i], 0, w.size[i]);
    for (std::int64_t k0 = range[0].first; k0 < range[0].second; ++k0)
        for (std::int64_t k1 = range[1].first; k1 < range[1].second; ++k1)
            for (std::int64_t k2 = range[2].first; k2 < range[2].second; ++k2)
                body((w.at(0, at[0], k0) * w.size[1] + w.at(1, at[1], k1)) * w.size[2] +
                     w.at(2, at[2], k2));
}

/// Where windows lie is said by the same attributes in both poolings.
template <typename T>
class Pool : public CustomOperator<T> {
    const kernels::Steps steps;
    const List kernel;
    const bool ceil;

protected:
    explicit Pool(const Attributes& given)
        : steps(given), kernel(given.integers("kernel_shape")), ceil(given.integer("ceil_mode")) {}

    Windows windows(const Shape& x) const {
        return Windows::on_input(kernels::spatial(x), kernel, steps, ceil);
    }
    Shape shape(const Shape& x) const {
        return windows(x).shape(x[0], x[1], x.size() - 2);
    }
};

}  // namespace

/// y: the largest element under each window; indices: its position in the whole of x.
template <typename T>
class MaxPool : public Pool<T> {
    const bool column_major;

    /// The number of an element of a channel, as `storage_order` counts them.
    std::int64_t number(std::int64_t element, const Sides& size) const {
        if (!column_major) return element;
        const Sides at = place(element, size);
        return at[0] + size[0] * (at[1] + size[1] * at[2]);
    }

public:
    explicit MaxPool(const Attributes& given)
        : Pool<T>(given), column_major(given.integer("storage_order")) {}

    Shapes shapes(const Shapes& in) const override {
        return {this->shape(in[0]), this->shape(in[0])};
    }

    void forward(const Inputs<T>& inputs, const Outputs<T>& outputs) override {
        const auto &x = inputs[0];
        const auto& y = outputs[0];
        const auto indices = outputs.integers(1);
        const Windows w = this->windows(x.shape());
        const std::int64_t out = volume(w.out), plane = volume(w.size);
        #pragma omp parallel for
        for (std::int64_t i = 0; i < y.size(); ++i) {
            const std::int64_t first = i / out * plane;
            std::int64_t best = -1;
            each_element(w, i % out, [&](std::int64_t element) {
                const T value = x[first + element];
                if (best < 0 || value > x[best] || (std::isnan(value) && !std::isnan(x[best])))
                    best = first + element;
            });
            y[i] = best < 0 ? -INFINITY : x[best];
            indices[i] = best < 0 ? -1 : first + number(best - first, w.size);
        }
    }

    void backward(const Inputs<T>& grads, const Inputs<T>& inputs, const Inputs<T>& outputs,
                  const Outputs<T>& input_grads) override {
        const auto &dy = grads[0];
        const auto& dx = input_grads[0];
        const auto indices = outputs.integers(1);
        const Windows w = this->windows(inputs[0].shape());
        const std::int64_t out = volume(w.out), plane = volume(w.size);
        const Sides turned{w.size[2], w.size[1], w.size[0]};
        #pragma omp parallel for
        for (std::int64_t channel = 0; channel < dx.size() / std::max<std::int64_t>(1, plane);
             ++channel) {
            T* target = &dx[channel * plane];
            std::fill_n(target, plane, T(0));
            for (std::int64_t i = channel * out; i < (channel + 1) * out; ++i) {
                std::int64_t element = indices[i] - channel * plane;
                if (indices[i] < 0) continue;
                if (column_major) {
                    const Sides at = place(element, turned);
                    element = (at[2] * w.size[1] + at[1]) * w.size[2] + at[0];
                }
                target[element] += dy[i];
            }
        }
    }
};
D5TEST_OPERATOR(MaxPool)
    .input("x", "*").output("y").unread().output("indices").integers()
    .attribute("kernel_shape", List{}).attribute("strides", List{})
    .attribute("dilations", List{}).attribute("pads", List{}).attribute("auto_pad", "NOTSET")
    .attribute("ceil_mode", 0).attribute("storage_order", 0).contiguous();

/// y: the mean under each window; with `count_include_pad` of the padding, too, which is zero.
template <typename T>
class AveragePool : public Pool<T> {
    const bool padded;

    /// How many elements count under the o-th window.
    T counted(const Windows& w, std::int64_t o) const {
        const Sides at = place(o, w.out);
        std::int64_t count = 1;
        for (int i = 0; i < 3; ++i) {
            const std::int64_t before = padded ? w.begin[i] : 0, behind = padded ? w.end[i] : 0;
            const auto [first, last] = taps(w, i, at[i], -before, w.size[i] + behind);
            count *= last - first;
        }
        return static_cast<T>(count);
    }

public:
    explicit AveragePool(const Attributes& given)
        : Pool<T>(given), padded(given.integer("count_include_pad")) {}

    Shapes shapes(const Shapes& in) const override { return {this->shape(in[0])}; }

    void forward(const Inputs<T>& inputs, const Outputs<T>& outputs) override {
        const auto &x = inputs[0];
        const auto& y = outputs[0];
        const Windows w = this->windows(x.shape());
        const std::int64_t out = volume(w.out), plane = volume(w.size);
        #pragma omp parallel for
        for (std::int64_t i = 0; i < y.size(); ++i) {
            T sum = 0;
            each_element(w, i % out, [&](std::int64_t at) { sum += x[i / out * plane + at]; });
            y[i] = sum / counted(w, i % out);
        }
    }

    void backward(const Inputs<T>& grads, const Inputs<T>& inputs, const Inputs<T>&,
                  const Outputs<T>& input_grads) override {
        const auto &dy = grads[0];
        const auto& dx = input_grads[0];
        const Windows w = this->windows(inputs[0].shape());
        const std::int64_t out = volume(w.out), plane = volume(w.size);
        #pragma omp parallel for
        for (std::int64_t channel = 0; channel < dx.size() / std::max<std::int64_t>(1, plane);
             ++channel) {
            T* target = &dx[channel * plane];
            std::fill_n(target, plane, T(0));
            for (std::int64_t o = 0; o < out; ++o) {
                const T share = dy[channel * out + o] / counted(w, o);
                each_element(w, o, [&](std::int64_t at) { target[at] += share; });
            }
        }
    }
};
D5TEST_OPERATOR(AveragePool)
    .input("x", "*").output("y").unread()
    .attribute("kernel_shape", List{}).attribute("strides", List{})
    .attribute("dilations", List{}).attribute("pads", List{}).attribute("auto_pad", "NOTSET")
    .attribute("ceil_mode", 0).attribute("count_include_pad", 0).contiguous();

/// y: (n, c, 1, ...), the mean of each channel.
template <typename T>
class GlobalAveragePool : public CustomOperator<T> {
public:
    Shapes shapes(const Shapes& in) const override {
        if (in[0].size() < 2) throw std::invalid_argument("x has a batch and channels");
        Shape y(in[0].size(), 1);
        std::copy_n(in[0].begin(), 2, y.begin());
        return {y};
    }

    void forward(const Inputs<T>& inputs, const Outputs<T>& outputs) override {
        const auto &x = inputs[0];
        const auto& y = outputs[0];
        const std::int64_t plane = y.size() ? x.size() / y.size() : 0;
        #pragma omp parallel for
        for (std::int64_t i = 0; i < y.size(); ++i) {
            T sum = 0;
            for (std::int64_t k = 0; k < plane; ++k) sum += x[i * plane + k];
            y[i] = sum / plane;
        }
    }

    void backward(const Inputs<T>& grads, const Inputs<T>&, const Inputs<T>&,
                  const Outputs<T>& input_grads) override {
        const auto &dy = grads[0];
        const auto& dx = input_grads[0];
        const std::int64_t plane = dy.size() ? dx.size() / dy.size() : 0;
        #pragma omp parallel for
        for (std::int64_t i = 0; i < dx.size(); ++i) dx[i] = dy[i / plane] / plane;
    }
};
D5TEST_OPERATOR(GlobalAveragePool).input("x").output("y").unread().contiguous();
