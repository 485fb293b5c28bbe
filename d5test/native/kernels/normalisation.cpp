// Zero mean and unit variance over some axes, then a scale and a shift: BatchNormalization and
// LayerNormalization of ONNX.
#include <cmath>
#include <numeric>

#include <d5test/operator.h>

using namespace d5test;

namespace {

/// (n, c, *d) as its channels: each has `count` elements, `plane` in a row.
struct Channels {
    template <typename T>
    explicit Channels(const Tensor<T>& x) : n(x.shape(0)), c(x.shape(1)) {
        plane = x.size() > 0 ? x.size() / (n * c) : 0;
        count = n * plane;
    }
    /// Call `body(position)` for each element of a channel.
    template <typename Body>
    void each(std::int64_t channel, const Body& body) const {
        for (std::int64_t i = 0; i < n; ++i)
            for (std::int64_t k = 0; k < plane; ++k) body((i * c + channel) * plane + k);
    }

    std::int64_t n, c, plane, count;
};

/// Mean and variance of `count` values; `each(body)` calls body(value) for all of them.
template <typename T, typename Each>
std::pair<T, T> moments(std::int64_t count, const Each& each) {
    T sum = 0, squares = 0;
    each([&](T value) { sum += value; });
    const T mean = sum / count;
    each([&](T value) { squares += (value - mean) * (value - mean); });
    return {mean, squares / count};
}

}  // namespace

/// y = (x - mean) / sqrt(var + epsilon) scale + b, by channel; in training mean and variance are
/// x's, and mix into running ones. Ioffe and Szegedy, arXiv 1502.03167.
template <typename T>
class BatchNormalization : public CustomOperator<T> {
    const T epsilon, momentum;
    const bool training;

public:
    explicit BatchNormalization(const Attributes& given)
        : epsilon(given.real("epsilon")), momentum(given.real("momentum")),
          training(given.integer("training_mode")) {}

    Shapes shapes(const Shapes& in) const override {
        require(in[0].size() > 1 && in[1][0] == in[0][1], "there is one scale for each channel");
        if (!training) return {in[0]};
        return {in[0], in[3], in[4]};
    }

    void forward(const Inputs<T>& inputs, const Outputs<T>& outputs) override {
        const auto &x = inputs[0], &scale = inputs[1], &b = inputs[2];
        const auto& y = outputs[0];
        const Channels channels(x);
        #pragma omp parallel for
        for (std::int64_t c = 0; c < channels.c; ++c) {
            T mean = inputs[3][c], var = inputs[4][c];
            if (training) {
                std::tie(mean, var) = own_moments(x, channels, c);
                outputs[1][c] = momentum * inputs[3][c] + (1 - momentum) * mean;
                outputs[2][c] = momentum * inputs[4][c] + (1 - momentum) * var;
            }
            const T deviation = std::sqrt(var + epsilon);
            channels.each(c, [&](std::int64_t i) {
                y[i] = (x[i] - mean) / deviation * scale[c] + b[c];
            });
        }
    }

    void backward(const Inputs<T>& grads, const Inputs<T>& inputs, const Inputs<T>&,
                  const Outputs<T>& input_grads) override {
        const auto &dy = grads[0], &x = inputs[0], &scale = inputs[1];
        const auto& dx = input_grads[0];
        const Channels channels(x);
        #pragma omp parallel for
        for (std::int64_t c = 0; c < channels.c; ++c) {
            T mean = inputs[3][c], var = inputs[4][c];
            if (training) std::tie(mean, var) = own_moments(x, channels, c);
            const T rstd = 1 / std::sqrt(var + epsilon);
            T sum = 0, along = 0;  // of dy, and of dy times what x is normalised to
            channels.each(c, [&](std::int64_t i) {
                sum += dy[i];
                along += dy[i] * ((x[i] - mean) * rstd);
            });
            const T mean_sum = training ? sum / channels.count : T(0);
            const T mean_along = training ? along / channels.count : T(0);
            channels.each(c, [&](std::int64_t i) {
                const T xhat = (x[i] - mean) * rstd;
                dx[i] = scale[c] * rstd * (dy[i] - mean_sum - xhat * mean_along);
            });
            input_grads[1][c] = along;
            input_grads[2][c] = sum;
            input_grads[3][c] = training ? T(0) : -sum * scale[c] * rstd;
            input_grads[4][c] = training ? T(0) : T(-0.5) * along * scale[c] * rstd * rstd;
        }
    }

private:
    static std::pair<T, T> own_moments(const Tensor<const T>& x, const Channels& channels,
                                       std::int64_t c) {
        return moments<T>(channels.count, [&](const auto& body) {
            channels.each(c, [&](std::int64_t i) { body(x[i]); });
        });
    }
};
D5TEST_OPERATOR(BatchNormalization)
    .input("x", "*").input("scale", "c").input("b", "c").input("input_mean", "c")
    .input("input_var", "c", "positive")
    .output("y").unread().output("running_mean").optional().unread()
    .output("running_var").optional().unread()
    .attribute("epsilon", 1e-5).attribute("momentum", 0.9).attribute("training_mode", 0, {1})
    .contiguous();

/// y = (x - mean) / sqrt(var + epsilon) scale + b, by sample, over the axes from `axis` on; also
/// the mean and 1 / sqrt(var + epsilon). Ba, Kiros and Hinton, arXiv 1607.06450.
template <typename T>
class LayerNormalization : public CustomOperator<T> {
    const int axis;
    const T epsilon;

    /// How x falls into samples, and where parameters that broadcast to it lie.
    struct Samples {
        Samples(const Tensor<const T>& x, int axis) {
            for (int k = 0; k < x.rank(); ++k)
                (k < (axis + x.rank()) % x.rank() ? count : width) *= x.shape(k);
        }
        std::int64_t count = 1, width = 1;
    };

    /// The element of a parameter that meets the i-th of x.
    template <typename Element>
    static Element& met(const Tensor<Element>& parameter, const Tensor<const T>& x,
                        std::int64_t i) {
        std::int64_t at = 0;
        for (int own = parameter.rank() - 1, k = x.rank() - 1; own >= 0; --own, --k) {
            if (parameter.shape(own) > 1) at += i % x.shape(k) * parameter.stride(own);
            i /= x.shape(k);
        }
        return parameter.data()[at];
    }

public:
    explicit LayerNormalization(const Attributes& given)
        : axis(given.integer("axis")), epsilon(given.real("epsilon")) {}

    Shapes shapes(const Shapes& in) const override {
        const int rank = static_cast<int>(in[0].size());
        require(axis >= -rank && axis < rank, "there is no such axis");
        for (const auto& parameter : {in[1], in[2]}) {
            require(parameter.size() <= in[0].size(), "scale and b broadcast to x");
            for (std::size_t k = 1; k <= parameter.size(); ++k) {
                const auto side = parameter[parameter.size() - k];
                require(side == 1 || side == in[0][rank - k], "scale and b broadcast to x");
            }
        }
        Shape each = in[0];
        std::fill(each.begin() + (axis + rank) % rank, each.end(), 1);
        return {in[0], each, each};
    }

    void forward(const Inputs<T>& inputs, const Outputs<T>& outputs) override {
        const auto &x = inputs[0], &scale = inputs[1], &b = inputs[2];
        const auto& y = outputs[0];
        const Samples samples(x, axis);
        #pragma omp parallel for
        for (std::int64_t s = 0; s < samples.count; ++s) {
            const std::int64_t first = s * samples.width, last = first + samples.width;
            const auto [mean, var] = moments<T>(samples.width, [&](const auto& body) {
                for (std::int64_t i = first; i < last; ++i) body(x[i]);
            });
            const T rstd = 1 / std::sqrt(var + epsilon);
            for (std::int64_t i = first; i < last; ++i) {
                y[i] = (x[i] - mean) * rstd * met(scale, x, i);
                if (b.present()) y[i] += met(b, x, i);
            }
            outputs[1][s] = mean;
            outputs[2][s] = rstd;
        }
    }

    void backward(const Inputs<T>& grads, const Inputs<T>& inputs, const Inputs<T>& outputs,
                  const Outputs<T>& input_grads) override {
        const auto &dy = grads[0], &dmean = grads[1], &drstd = grads[2];
        const auto &x = inputs[0], &scale = inputs[1];
        const auto &dx = input_grads[0], &dscale = input_grads[1], &db = input_grads[2];
        const Samples samples(x, axis);
        const T n = static_cast<T>(samples.width);
        std::fill_n(dscale.data(), dscale.size(), T(0));
        if (db.present()) std::fill_n(db.data(), db.size(), T(0));
        for (std::int64_t s = 0; s < samples.count; ++s) {  // in turn: they share dscale and db
            const std::int64_t first = s * samples.width, last = first + samples.width;
            const T mean = outputs[1][s], rstd = outputs[2][s];
            T sum = 0, along = 0;
            for (std::int64_t i = first; i < last; ++i) {
                const T xhat = (x[i] - mean) * rstd, dxhat = dy[i] * met(scale, x, i);
                sum += dxhat;
                along += dxhat * xhat;
                met(dscale, x, i) += dy[i] * xhat;
                if (db.present()) met(db, x, i) += dy[i];
            }
            for (std::int64_t i = first; i < last; ++i) {
                const T xhat = (x[i] - mean) * rstd, dxhat = dy[i] * met(scale, x, i);
                dx[i] = rstd * (dxhat - sum / n - xhat * (along / n)) + dmean[s] / n -
                        drstd[s] * rstd * rstd * xhat / n;
            }
        }
    }
};
D5TEST_OPERATOR(LayerNormalization)
    .input("x", "*").input("scale", "*").input("b", "*").optional()
    .output("y").unread().output("mean").output("inv_std_dev")
    .attribute("axis", -1).attribute("epsilon", 1e-5).attribute("stash_type", 1).contiguous();
