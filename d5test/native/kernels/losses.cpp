// A classifier's loss against whole-number labels: SoftmaxCrossEntropyLoss of ONNX.
#include <cmath>
#include <limits>

#include <d5test/operator.h>

using namespace d5test;

namespace {

constexpr std::int64_t none = std::numeric_limits<std::int64_t>::min();

/// Scores (n, c, *d) as samples of c classes, which are `plane` elements apart.
struct Samples {
    template <typename T>
    explicit Samples(const Tensor<T>& scores) : classes(scores.shape(1)) {
        for (int axis = 2; axis < scores.rank(); ++axis) plane *= scores.shape(axis);
        count = scores.shape(0) * plane;
    }
    /// The first of the scores of a sample.
    std::int64_t first(std::int64_t i) const { return i / plane * plane * classes + i % plane; }

    std::int64_t classes, plane = 1, count = 0;
};

}  // namespace

/// loss = -weights[label] log_prob[label], each, their sum or their weighted mean, and log_prob,
/// the logarithm of the softmax of the scores. Labels that are `ignore_index` count nowhere.
template <typename T>
class SoftmaxCrossEntropyLoss : public CustomOperator<T> {
    const std::int64_t ignored;
    const std::string reduction;

    /// The weight of each sample, and the sum of all.
    std::pair<std::vector<T>, T> shares(const Inputs<T>& inputs, const Samples& samples) const {
        const auto labels = inputs.integers(1);
        const auto& weights = inputs[2];
        std::vector<T> each(samples.count);
        T sum = 0;
        for (std::int64_t i = 0; i < samples.count; ++i) {
            if (labels[i] == ignored) continue;
            if (labels[i] < 0 || labels[i] >= samples.classes)
                throw std::out_of_range("label " + std::to_string(labels[i]) + " is no class");
            sum += each[i] = weights.present() ? weights[labels[i]] : T(1);
        }
        return {each, sum};
    }

public:
    explicit SoftmaxCrossEntropyLoss(const Attributes& given)
        : ignored(given.integer("ignore_index")), reduction(given.text("reduction")) {}

    Shapes shapes(const Shapes& in) const override {
        const auto &scores = in[0], &labels = in[1], &weights = in[2];
        if (scores.size() < 2) throw std::invalid_argument("scores have a batch and classes");
        Shape each = scores;
        each.erase(each.begin() + 1);
        if (labels != each) throw std::invalid_argument("there is one label for each sample");
        if (!weights.empty() && weights != Shape{scores[1]})
            throw std::invalid_argument("there is one weight for each class");
        return {reduction == "none" ? each : Shape{}, scores};
    }

    void forward(const Inputs<T>& inputs, const Outputs<T>& outputs) override {
        const Samples s(inputs[0]);
        const auto labels = inputs.integers(1);
        const auto [share, sum] = shares(inputs, s);
        const bool each = reduction == "none";
        T total = 0;
        for (std::int64_t i = 0; i < s.count; ++i) {
            const T* x = &inputs[0][s.first(i)];
            T* y = &outputs[1][s.first(i)];
            T largest = x[0], exponentials = 0;
            for (std::int64_t at = s.plane; at < s.classes * s.plane; at += s.plane)
                if (x[at] > largest || std::isnan(x[at])) largest = x[at];
            for (std::int64_t c = 0; c < s.classes; ++c)
                exponentials += std::exp(y[c * s.plane] = x[c * s.plane] - largest);
            const T logarithm = std::log(exponentials);
            for (std::int64_t c = 0; c < s.classes; ++c) y[c * s.plane] -= logarithm;
            const T loss = labels[i] == ignored ? T(0) : -share[i] * y[labels[i] * s.plane];
            if (each) outputs[0][i] = loss;
            total += loss;
        }
        if (!each) outputs[0][0] = reduction == "mean" ? total / sum : total;
    }

    void backward(const Inputs<T>& grads, const Inputs<T>& inputs, const Inputs<T>& outputs,
                  const Outputs<T>& input_grads) override {
        const Samples s(inputs[0]);
        const auto labels = inputs.integers(1);
        const auto [share, sum] = shares(inputs, s);
        const auto &dloss = grads[0], &dlog_prob = grads[1], &log_prob = outputs[1];
        #pragma omp parallel for
        for (std::int64_t i = 0; i < s.count; ++i) {
            const std::int64_t first = s.first(i);
            T upstream = reduction == "none" ? dloss[i] : dloss[0];
            if (reduction == "mean") upstream /= sum;
            const T taken = -share[i] * upstream;  // the gradient of log_prob[label]
            T through = 0;  // the sum of what comes by log_prob
            for (std::int64_t c = 0; c < s.classes; ++c) through += dlog_prob[first + c * s.plane];
            for (std::int64_t c = 0; c < s.classes; ++c) {
                const std::int64_t at = first + c * s.plane;
                const T p = std::exp(log_prob[at]);
                const T by_loss = (c == labels[i] ? taken : T(0)) - p * taken;
                input_grads[0][at] = by_loss + (dlog_prob[at] - p * through);
            }
        }
    }
};
D5TEST_OPERATOR(SoftmaxCrossEntropyLoss)
    .input("scores", "*").input("labels", "*", "below 2").integers()
    .input("weights", "c", "positive").optional().constant()
    .output("output", "").output("log_prob")
    .attribute("ignore_index", none).attribute("reduction", "mean", {"sum", "none"}).contiguous();
