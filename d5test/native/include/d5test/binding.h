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
    virtual Shapes shapes(const D5Tensor* inputs) const = 0;
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

    Shapes shapes(const D5Tensor* inputs) const override {
        const auto& ports = entry.declared.inputs;
        Sizes sizes;
        for (std::size_t i = 0; i < ports.size(); ++i) {
            if (inputs[i].ndim >= 0) {
                sizes.match(ports[i], inputs[i].shape, inputs[i].ndim);
            } else if (!(ports[i].flags & D5_PORT_OPTIONAL)) {
                throw Unsupported("input " + ports[i].name + " is left out");
            }
        }
        Shapes found;
        if (entry.shaped) {
            for (std::size_t i = 0; i < ports.size(); ++i)
                found.emplace_back(inputs[i].shape, inputs[i].shape + std::max(inputs[i].ndim, 0));
            return op->shapes(found);
        }
        found.reserve(entry.declared.outputs.size());
        for (const auto& port : entry.declared.outputs) found.push_back(sizes.shape(port));
        return found;
    }
    void forward(const D5Tensor* inputs, const D5Tensor* outputs) override {
        op->forward(Inputs<T>(inputs, entry.declared.inputs.size()),
                    Outputs<T>(outputs, entry.declared.outputs.size()));
    }
    void backward(const D5Tensor* grads, const D5Tensor* inputs, const D5Tensor* outputs,
                  const D5Tensor* input_grads) override {
        const std::size_t n = entry.declared.inputs.size(), m = entry.declared.outputs.size();
        op->backward(Inputs<T>(grads, m), Inputs<T>(inputs, n), Inputs<T>(outputs, m),
                     Outputs<T>(input_grads, n));
    }

    std::unique_ptr<CustomOperator<T>> op;
};

}  // namespace d5test::detail
