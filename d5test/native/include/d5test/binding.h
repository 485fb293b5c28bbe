// A class of an author's behind the types of the interface: registered, and made.
#pragma once

#include <memory>
#include <mutex>
#include <type_traits>

#include "custom_operator.h"

namespace d5test::detail {


struct Entry;

/// An operator made: what stands behind a `void*` of the interface.
struct Made {
    explicit Made(const Entry& entry) : entry(entry) {}
    virtual ~Made() = default;
    virtual Shapes shapes(const Shapes& inputs) const = 0;
    virtual void forward(const D5Tensor* inputs, const D5Tensor* outputs) = 0;
    virtual void backward(const D5Tensor* grads, const D5Tensor* inputs, const D5Tensor* outputs,
                          const D5Tensor* input_grads) = 0;
    const Entry& entry;
    bool guarded = false;
    std::once_flag watched_forward, watched_backward;
};

using Maker = std::unique_ptr<Made> (*)(const Entry&, const Attributes&);

/// A registered operator: its declaration, and the table made of it when somebody asks.
struct Entry {
    std::string name, source;
    Declaration declared;
    Maker for_float, for_double;
    bool differentiable, shaped;
    D5Operator table{};
    std::vector<D5Port> inputs, outputs;
    std::vector<D5Choice> attributes;
    std::deque<std::vector<D5Attribute>> others;
};

inline std::deque<Entry>& registry() {
    static std::deque<Entry> entries;
    return entries;
}

template <typename T, typename Op>
struct Bound final : Made {
    Bound(const Entry& entry, const Attributes& given) : Made(entry), op(made(given)) {}

    static std::unique_ptr<CustomOperator<T>> made(const Attributes& given) {
        if constexpr (std::is_constructible_v<Op, const Attributes&>)
            return std::make_unique<Op>(given);
        else
            return std::make_unique<Op>();
    }
    template <typename Element>
    static std::vector<Tensor<Element>> views(const D5Tensor* tensors, std::size_t count) {
        return std::vector<Tensor<Element>>(tensors, tensors + count);
    }

    Shapes shapes(const Shapes& inputs) const override {
        Sizes sizes;
        for (std::size_t i = 0; i < inputs.size(); ++i)
            sizes.match(entry.declared.inputs[i], inputs[i]);
        if (entry.shaped) return op->shapes(inputs);
        Shapes found;
        for (const auto& port : entry.declared.outputs) found.push_back(sizes.shape(port));
        return found;
    }
    void forward(const D5Tensor* inputs, const D5Tensor* outputs) override {
        op->forward(views<const T>(inputs, entry.declared.inputs.size()),
                    views<T>(outputs, entry.declared.outputs.size()));
    }
    void backward(const D5Tensor* grads, const D5Tensor* inputs, const D5Tensor* outputs,
                  const D5Tensor* input_grads) override {
        const std::size_t n = entry.declared.inputs.size(), m = entry.declared.outputs.size();
        op->backward(views<const T>(grads, m), views<const T>(inputs, n),
                     views<const T>(outputs, m), views<T>(input_grads, n));
    }

    std::unique_ptr<CustomOperator<T>> op;
};

}  // namespace d5test::detail
