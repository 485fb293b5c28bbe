// y = factor x on a GPU, in the stream that the framework computes in.
#include <d5test/operator.h>

template <typename T>
__global__ void scale(const T* x, T* y, T factor, int64_t size) {
    const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i < size) y[i] = factor * x[i];
}

template <typename T>
class Scale : public d5test::CustomOperator<T> {
    const T factor;

    void launch(const d5test::Tensor<const T>& x, const d5test::Tensor<T>& y) const {
        const auto stream = static_cast<cudaStream_t>(d5test::stream());
        const int64_t threads = 256, blocks = (x.size() + threads - 1) / threads;
        if (blocks == 0) return;
        scale<<<unsigned(blocks), unsigned(threads), 0, stream>>>(x.data(), y.data(), factor,
                                                                  x.size());
        if (const auto error = cudaGetLastError(); error != cudaSuccess)
            throw std::runtime_error(cudaGetErrorString(error));
    }

public:
    explicit Scale(const d5test::Attributes& given) : factor(given.real("factor")) {}

    void forward(const d5test::Inputs<T>& in, const d5test::Outputs<T>& out) override {
        launch(in[0], out[0]);
    }
    void backward(const d5test::Inputs<T>& grads, const d5test::Inputs<T>&,
                  const d5test::Inputs<T>&, const d5test::Outputs<T>& input_grads) override {
        launch(grads[0], input_grads[0]);
    }
};

D5TEST_OPERATOR(Scale).input("x").output("y").attribute("factor", 2.0).contiguous();
