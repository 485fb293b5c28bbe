// BatchNormalization and LayerNormalization of ONNX, by oneDNN.
#include <cmath>

#include "primitives.h"

using namespace d5test;
using namespace onednn;
using dnnl::normalization_flags;

/// y = (x - mean) / sqrt(var + epsilon) scale + b, by channel; in training mean and variance are
/// x's, and mix into running ones.
template <typename T>
class BatchNormalization : public CustomOperator<T> {
    const float epsilon, momentum;
    const bool own;  // mean and variance are x's
    Programs forwards, backwards;

    using Forward = dnnl::batch_normalization_forward;
    using Backward = dnnl::batch_normalization_backward;

    static Layout planes(const Shape& x) {
        return row_major({x[0], x[1], 1, volume(x) / (x[0] * x[1])});
    }
    normalization_flags flags() const {
        const auto both = normalization_flags::use_scale | normalization_flags::use_shift;
        return own ? both : both | normalization_flags::use_global_stats;
    }
    Forward::primitive_desc chosen(const Layout& x) const {
        return {{training, x, epsilon, flags()}, cpu()};
    }
    void run(const Inputs<T>& inputs, T* y, const T* mean, const T* var) {
        const Shape shape = inputs[0].shape();
        forwards.run({shape}, {inputs[0].data(), inputs[1].data(), inputs[2].data(), y, mean, var},
                     [&] {
            const Layout x = planes(shape), c = row_major({shape[1]});
            return Program(chosen(x), {{DNNL_ARG_SRC, x}, {DNNL_ARG_SCALE, c}, {DNNL_ARG_SHIFT, c},
                                       {DNNL_ARG_DST, x, true}, {DNNL_ARG_MEAN, c, own},
                                       {DNNL_ARG_VARIANCE, c, own}});
        });
    }

public:
    explicit BatchNormalization(const Attributes& given)
        : epsilon(given.real("epsilon")), momentum(given.real("momentum")),
          own(given.integer("training_mode")) {
        require_float<T>();
    }

    Shapes shapes(const Shapes& in) const override {
        require(in[0].size() > 1 && in[1][0] == in[0][1], "there is one scale for each channel");
        if (!own) return {in[0]};
        return {in[0], in[3], in[4]};
    }

    void forward(const Inputs<T>& inputs, const Outputs<T>& outputs) override {
        if (nothing(inputs[0].shape())) return;
        const T *mean = inputs[3].data(), *var = inputs[4].data();
        if (!own) return run(inputs, outputs[0].data(), mean, var);
        T *new_mean = outputs[1].data(), *new_var = outputs[2].data();
        run(inputs, outputs[0].data(), new_mean, new_var);
        for (std::int64_t c = 0; c < inputs[3].size(); ++c) {
            new_mean[c] = momentum * mean[c] + (1 - momentum) * new_mean[c];
            new_var[c] = momentum * var[c] + (1 - momentum) * new_var[c];
        }
    }

    void backward(const Inputs<T>& grads, const Inputs<T>& inputs, const Inputs<T>&,
                  const Outputs<T>& input_grads) override {
        const Shape shape = inputs[0].shape();
        if (nothing(shape)) return;
        const std::int64_t channels = shape[1];
        std::vector<T> y(own ? inputs[0].size() : 0), moments(2 * channels);
        T *mean = moments.data(), *var = mean + channels;
        std::copy_n(inputs[3].data(), channels, mean);
        std::copy_n(inputs[4].data(), channels, var);
        if (own) run(inputs, y.data(), mean, var);
        T *dscale = input_grads[1].data(), *db = input_grads[2].data();
        const std::vector<const void*> tensors{
            inputs[0].data(), grads[0].data(), inputs[1].data(), inputs[2].data(), mean, var,
            input_grads[0].data(), dscale, db};
        backwards.run({shape}, tensors, [&] {
            const Layout x = planes(shape), c = row_major({channels});
            const Backward::primitive_desc found(
                {dnnl::prop_kind::backward, x, x, epsilon, flags()}, cpu(), chosen(x));
            return Program(found, {{DNNL_ARG_SRC, x}, {DNNL_ARG_DIFF_DST, x}, {DNNL_ARG_SCALE, c},
                                   {DNNL_ARG_SHIFT, c}, {DNNL_ARG_MEAN, c}, {DNNL_ARG_VARIANCE, c},
                                   {DNNL_ARG_DIFF_SRC, x, true}, {DNNL_ARG_DIFF_SCALE, c, true},
                                   {DNNL_ARG_DIFF_SHIFT, c, true}});
        });
        for (std::int64_t c = 0; c < channels; ++c) {  // of given moments; oneDNN has no such
            const T rstd = 1 / std::sqrt(var[c] + epsilon), scale = inputs[1][c];
            input_grads[3][c] = own ? T(0) : -db[c] * scale * rstd;
            input_grads[4][c] = own ? T(0) : T(-0.5) * dscale[c] * scale * rstd * rstd;
        }
    }
};
D5TEST_OPERATOR(BatchNormalization)
    .input("x", "*").input("scale", "c").input("b", "c").input("input_mean", "c")
    .input("input_var", "c", "positive")
    .output("y").unread().output("running_mean").optional().unread()
    .output("running_var").optional().unread()
    .attribute("epsilon", 1e-5).attribute("momentum", 0.9).attribute("training_mode", 0, {1})
    .contiguous();

/// y = (x - mean) / sqrt(var + epsilon) scale + b, by sample, over the axes from `axis` on.
template <typename T>
class LayerNormalization : public CustomOperator<T> {
    const int axis;
    const float epsilon;
    Programs forwards, backwards;

    using Forward = dnnl::layer_normalization_forward;
    using Backward = dnnl::layer_normalization_backward;

    /// x as samples of so many elements.
    Dims samples(const Shape& x) const {
        const auto at = x.begin() + (axis < 0 ? axis + static_cast<int>(x.size()) : axis);
        return {volume(Shape(x.begin(), at)), volume(Shape(at, x.end()))};
    }
    static normalization_flags flags(bool shifted) {
        return shifted ? normalization_flags::use_scale | normalization_flags::use_shift
                       : normalization_flags::use_scale;
    }
    Forward::primitive_desc chosen(const Layout& x, const Layout& each, bool shifted) const {
        return {{training, x, each, epsilon, flags(shifted)}, cpu()};
    }
    static void fit(bool parameters) {
        if (!parameters)
            throw Unsupported("oneDNN has one scale and shift for each normalised element");
    }
    static Shapes key(const Inputs<T>& inputs) {
        return {inputs[0].shape(), inputs[2].present() ? inputs[2].shape() : Shape{}};
    }
    void run(const Inputs<T>& inputs, T* y, T* mean, T* var) {
        const bool shifted = inputs[2].present();
        std::vector<const void*> tensors{inputs[0].data(), inputs[1].data(), y, mean, var};
        if (shifted) tensors.push_back(inputs[2].data());
        forwards.run(key(inputs), tensors, [&] {
            const Dims dims = samples(inputs[0].shape());
            const Layout x = row_major(dims), each = row_major({dims[0]}), w = row_major({dims[1]});
            std::vector<Argument> arguments{{DNNL_ARG_SRC, x}, {DNNL_ARG_SCALE, w},
                                            {DNNL_ARG_DST, x, true}, {DNNL_ARG_MEAN, each, true},
                                            {DNNL_ARG_VARIANCE, each, true}};
            if (shifted) arguments.push_back({DNNL_ARG_SHIFT, w});
            return Program(chosen(x, each, shifted), arguments);
        });
    }

public:
    explicit LayerNormalization(const Attributes& given)
        : axis(given.integer("axis")), epsilon(given.real("epsilon")) {
        require_float<T>();
    }

    Shapes shapes(const Shapes& in) const override {
        const int rank = static_cast<int>(in[0].size());
        require(axis >= -rank && axis < rank, "there is no such axis");
        const Shape normalised(in[0].begin() + (axis + rank) % rank, in[0].end());
        fit(in[1] == normalised && (in[2].empty() || in[2] == normalised));
        return {in[0]};
    }

    void forward(const Inputs<T>& inputs, const Outputs<T>& outputs) override {
        fit(!inputs[2].present() || inputs[2].rank() > 0);
        if (nothing(inputs[0].shape())) return;
        std::vector<T> moments(2 * samples(inputs[0].shape())[0]);
        run(inputs, outputs[0].data(), moments.data(), moments.data() + moments.size() / 2);
    }

    void backward(const Inputs<T>& grads, const Inputs<T>& inputs, const Inputs<T>&,
                  const Outputs<T>& input_grads) override {
        const Shape shape = inputs[0].shape();
        if (nothing(shape)) return;
        const Dims dims = samples(shape);
        std::vector<T> y(inputs[0].size()), moments(2 * dims[0]);
        T *mean = moments.data(), *var = mean + dims[0];
        run(inputs, y.data(), mean, var);
        const bool shifted = inputs[2].present();
        std::vector<const void*> tensors{inputs[0].data(), grads[0].data(), inputs[1].data(), mean,
                                         var, input_grads[0].data(), input_grads[1].data()};
        if (shifted) tensors.insert(tensors.end(), {inputs[2].data(), input_grads[2].data()});
        backwards.run(key(inputs), tensors, [&] {
            const Layout x = row_major(dims), each = row_major({dims[0]}), w = row_major({dims[1]});
            const Backward::primitive_desc found(
                {dnnl::prop_kind::backward, x, x, each, epsilon, flags(shifted)}, cpu(),
                chosen(x, each, shifted));
            std::vector<Argument> arguments{
                {DNNL_ARG_SRC, x}, {DNNL_ARG_DIFF_DST, x}, {DNNL_ARG_SCALE, w},
                {DNNL_ARG_MEAN, each}, {DNNL_ARG_VARIANCE, each}, {DNNL_ARG_DIFF_SRC, x, true},
                {DNNL_ARG_DIFF_SCALE, w, true}};
            if (shifted)
                arguments.insert(arguments.end(),
                                 {{DNNL_ARG_SHIFT, w}, {DNNL_ARG_DIFF_SHIFT, w, true}});
            return Program(found, arguments);
        });
    }
};
D5TEST_OPERATOR(LayerNormalization)
    .input("x", "*").input("scale", "*").input("b", "*").optional().output("y").unread()
    .attribute("axis", -1).attribute("epsilon", 1e-5).attribute("stash_type", 1).contiguous();
