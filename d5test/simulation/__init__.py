"""What allreduces would cost on other machines and on more ranks than there are.

    machine    what a machine is in the model: LogGP, with additions
    ghost      an array that has a size and no data
    events     any schedule, message by message: what a rank waits for, and when it is done
    rounds     our allreduces, all ranks and many sizes at once, on as many ranks as one likes
    fit        the machine, from times that were measured; and how far its predictions are off
    gradients  sizes of the gradients of networks, and the buckets in which they are summed
    picture    which algorithm wins where

`events` runs the generators of `d5test.reference.collectives` themselves. `rounds` says the same
in arrays; that both have the same times is a test (`tests/simulation`).
"""
