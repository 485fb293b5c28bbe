// The functions of the interface, and the table of them that an operator is shown by.
#pragma once

#include <cstdio>
#include <exception>

#include "binding.h"
#include "guard.h"

namespace d5test::detail {

/// Run `body`, and say in `message` how it ended: "NAME.PART throws: ...". No exception crosses the
/// interface.
template <typename Body>
std::int32_t told(const D5Message& message, const char* name, const char* part, const Body& body) {
    const auto tell = [&](const std::string& text, std::int32_t status) {
        std::snprintf(message.text, message.size, "%s%s%s", name, part, text.c_str());
        return status;
    };
    try {
        body();
        return D5_OK;
    } catch (const Unsupported& reason) {
        return tell(std::string(": ") + reason.what(), D5_UNSUPPORTED);
    } catch (const guard::Fault& fault) {
        return tell(std::string(" ") + fault.what(), D5_FAULT);
    } catch (const std::exception& error) {
        return tell(std::string(" throws: ") + error.what(), D5_RAISED);
    } catch (...) {
        return tell(" throws", D5_RAISED);
    }
}

/// A call on copies between guard zones; what is right is handed on.
template <typename Call>
void guarded_call(const std::vector<std::pair<D5Tensor, std::string>>& read,
                  const std::vector<std::pair<D5Tensor, std::string>>& written,
                  std::once_flag& watched, const Call& call) {
    std::deque<guard::Zoned> in, out;
    std::vector<D5Tensor> sources, targets;
    for (const auto& [tensor, name] : read)
        sources.push_back(in.emplace_back(tensor, name.c_str(), false).tensor);
    for (const auto& [tensor, name] : written)
        targets.push_back(out.emplace_back(tensor, name.c_str(), true).tensor);
    call(sources.data(), targets.data());
    for (auto* zoned : {&in, &out})
        for (auto& one : *zoned) one.inspect();
    for (const auto& one : out) one.deliver();
    std::size_t bytes = 0;
    for (const auto* zoned : {&in, &out})
        for (const auto& one : *zoned) bytes += one.bytes();
    if (bytes > guard::watched_bytes) return;
    std::call_once(watched, [&] {
        guard::watch_heap([&] { call(sources.data(), targets.data()); });
    });
}

inline void append(std::vector<std::pair<D5Tensor, std::string>>& list, const D5Tensor* tensors,
                   const std::deque<Port>& ports, const char* what) {
    for (std::size_t k = 0; k < ports.size(); ++k)
        list.emplace_back(tensors[k], what + ports[k].name);
}

inline std::int32_t create(const D5Operator* table, const D5Attribute* given, std::int32_t count,
                           std::int32_t bits, std::int32_t guarded, void** made,
                           D5Message message) {
    return told(message, table->name, "", [&] {
        for (const Entry& entry : registry()) {
            if (&entry.table != table) continue;
            Attributes attributes;
            for (const auto& one : entry.declared.attributes)
                attributes.declare(one.name, one.value);
            for (std::int32_t k = 0; k < count; ++k)
                attributes.set(given[k].name, Value(given[k]));
            if (bits != 32 && bits != 64) throw Unsupported("it is for float32 and float64");
            auto one = (bits == 32 ? entry.for_float : entry.for_double)(entry, attributes);
            one->guarded = guarded && table->device == D5_CPU;
            *made = one.release();
        }
    });
}

inline void destroy(void* made) { delete static_cast<Made*>(made); }

inline std::int32_t infer(void* made, const D5Tensor* inputs, D5Tensor* outputs,
                          D5Message message) {
    const Made& op = *static_cast<Made*>(made);
    return told(message, op.entry.name.c_str(), "", [&] {
        const auto& ports = op.entry.declared.outputs;
        const Shapes found = op.shapes(inputs);
        const bool fewer = found.size() < ports.size() &&
                           ports[found.size()].flags & D5_PORT_OPTIONAL;
        if (found.size() != ports.size() && !fewer)
            throw std::logic_error("shapes() returns " + std::to_string(found.size()) +
                                   " shapes, not " + std::to_string(ports.size()));
        for (std::size_t k = 0; k < ports.size(); ++k) outputs[k].ndim = -1;
        for (std::size_t k = 0; k < found.size(); ++k) {
            if (found[k].size() > D5_MOST_DIMENSIONS) throw Unsupported("too many axes");
            outputs[k].ndim = static_cast<std::int32_t>(found[k].size());
            std::copy(found[k].begin(), found[k].end(), outputs[k].shape);
        }
    });
}

inline std::int32_t forward(void* made, const D5Tensor* inputs, const D5Tensor* outputs,
                            void* stream, D5Message message) {
    Made& op = *static_cast<Made*>(made);
    current_stream() = stream;
    return told(message, op.entry.name.c_str(), ".forward", [&] {
        if (!op.guarded) return op.forward(inputs, outputs);
        std::vector<std::pair<D5Tensor, std::string>> read, written;
        append(read, inputs, op.entry.declared.inputs, "input ");
        append(written, outputs, op.entry.declared.outputs, "output ");
        guarded_call(read, written, op.watched_forward,
                     [&](const D5Tensor* in, const D5Tensor* out) { op.forward(in, out); });
    });
}

inline std::int32_t backward(void* made, const D5Tensor* grads, const D5Tensor* inputs,
                             const D5Tensor* outputs, const D5Tensor* input_grads, void* stream,
                             D5Message message) {
    Made& op = *static_cast<Made*>(made);
    current_stream() = stream;
    return told(message, op.entry.name.c_str(), ".backward", [&] {
        if (!op.guarded) return op.backward(grads, inputs, outputs, input_grads);
        std::vector<std::pair<D5Tensor, std::string>> read, written;
        const std::size_t n = op.entry.declared.inputs.size();
        const std::size_t m = op.entry.declared.outputs.size();
        append(read, grads, op.entry.declared.outputs, "the gradient of output ");
        append(read, inputs, op.entry.declared.inputs, "input ");
        append(read, outputs, op.entry.declared.outputs, "output ");
        append(written, input_grads, op.entry.declared.inputs, "the gradient of input ");
        guarded_call(read, written, op.watched_backward,
                     [&](const D5Tensor* in, const D5Tensor* out) {
                         op.backward(in, in + m, in + m + n, out);
                     });
    });
}

/// Fill the table of an operator from its declaration.
inline const D5Operator* shown(Entry& entry) {
    if (entry.table.abi) return &entry.table;
    for (const auto& port : entry.declared.inputs)
        entry.inputs.push_back(
            {port.name.c_str(), port.dims.c_str(), port.values.c_str(), port.flags});
    for (const auto& port : entry.declared.outputs)
        entry.outputs.push_back({port.name.c_str(), port.dims.c_str(), "", port.flags});
    for (const auto& one : entry.declared.attributes) {
        auto& others = entry.others.emplace_back();
        for (const auto& value : one.others) others.push_back(value.shown(one.name.c_str()));
        entry.attributes.push_back({one.value.shown(one.name.c_str()),
                                    static_cast<std::int32_t>(others.size()), others.data()});
    }
    const auto count = [](const auto& list) { return static_cast<std::int32_t>(list.size()); };
#ifdef __CUDACC__
    const std::int32_t device = D5_CUDA;
#else
    const std::int32_t device = D5_CPU;
#endif
    const std::int32_t flags = (entry.differentiable ? D5_BACKWARD : 0) |
                               (entry.declared.needs_contiguous ? D5_CONTIGUOUS : 0) |
                               (entry.shaped ? D5_SHAPED : 0);
    entry.table = {D5_ABI, entry.name.c_str(), entry.source.c_str(), count(entry.inputs), count(entry.outputs),
                   count(entry.attributes), flags, device, entry.inputs.data(),
                   entry.outputs.data(), entry.attributes.data(), create, destroy, infer, forward,
                   backward};
    return &entry.table;
}

}  // namespace d5test::detail
