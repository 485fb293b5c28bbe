// The class that an operator is derived from.
#pragma once

#include "declaration.h"

namespace d5test {

/// The stream of CUDA in which the operator that is being called has to work; null on the CPU.
inline void*& current_stream() {
    static thread_local void* stream = nullptr;
    return stream;
}
inline void* stream() { return current_stream(); }

/// What an author derives from. One object may be called by several threads at once.
template <typename T>
class CustomOperator {
public:
    virtual ~CustomOperator() = default;

    /// The outputs' shapes. Without it they follow from the axes that were registered. An absent
    /// input has no axes; optional outputs that are not made have no shape here.
    virtual Shapes shapes(const Shapes& inputs) const {
        (void)inputs;
        return {};
    }
    /// Write every element of every output.
    virtual void forward(const Inputs<T>& inputs, const Outputs<T>& outputs) = 0;
    /// Write every element of the inputs' gradients, from the gradients of the outputs. Gradients are
    /// absent of what is absent, of integers, of booleans and of what is constant; zeros come in from
    /// outputs that nothing is made of.
    virtual void backward(const Inputs<T>& grads, const Inputs<T>& inputs,
                          const Inputs<T>& outputs, const Outputs<T>& input_grads) {
        (void)grads, (void)inputs, (void)outputs, (void)input_grads;
        throw Unsupported("there is no gradient");
    }
};

}  // namespace d5test
