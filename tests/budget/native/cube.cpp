// y = factor x^3, as an author of a native operator writes it. The files beside this one have the same
// loops, by hand, in each framework's own way to enter an operator.
#include <d5test/operator.h>

template <typename T>
class Cube : public d5test::CustomOperator<T> {
    const T factor;

public:
    explicit Cube(const d5test::Attributes& given) : factor(given.real("factor")) {}

    void forward(const d5test::Inputs<T>& inputs, const d5test::Outputs<T>& outputs) override {
        const auto &x = inputs[0];
        const auto &y = outputs[0];
        #pragma omp parallel for
        for (int64_t i = 0; i < x.size(); ++i) y[i] = factor * x[i] * x[i] * x[i];
    }

    void backward(const d5test::Inputs<T>& grads, const d5test::Inputs<T>& inputs,
                  const d5test::Inputs<T>& /* outputs */,
                  const d5test::Outputs<T>& input_grads) override {
        const auto &dy = grads[0], &x = inputs[0];
        const auto &dx = input_grads[0];
        #pragma omp parallel for
        for (int64_t i = 0; i < x.size(); ++i) dx[i] = 3 * factor * dy[i] * x[i] * x[i];
    }
};

D5TEST_OPERATOR(Cube).input("x").output("y").unread().attribute("factor", 2.0);
