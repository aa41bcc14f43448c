"""The ranks of tensor_parallel.py: steps of a decoder with tensor parallelism, as servers run them.

A layer is attention over a cache of keys and values, and a gated MLP; each ends in a sum over the
ranks of a [batch, hidden] matrix, in place. Weights are random, and each rank has its part of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import ranks
import torch
import torch.distributed as dist
from tensor_parallel import add_sizes
from torch import Tensor
from torch.nn import functional

_REQUEST_SEED, _WARM_STEPS = 7, 3


class Decoder:
    """The part of one rank. ``options``: see `tensor_parallel.add_sizes`."""

    def __init__(self, options: argparse.Namespace, device: torch.device) -> None:
        self.options, self.device = options, device
        self.dtype = getattr(torch, options.dtype)
        size = dist.get_world_size()
        heads, ffn = options.heads // size, options.ffn // size
        depth = options.hidden // options.heads
        hidden, cached = options.hidden, (options.most_batch, heads, options.cache, depth)
        random = torch.Generator(device).manual_seed(1000 + dist.get_rank())

        def normal(*shape: int, scale: float) -> Tensor:
            made = torch.empty(*shape, device=device, dtype=self.dtype)
            return made.normal_(0, scale, generator=random)

        self.layers = [
            {
                "qkv": normal(3 * heads * depth, hidden, scale=hidden**-0.5),
                "out": normal(hidden, heads * depth, scale=hidden**-0.5),
                "gated": normal(2 * ffn, hidden, scale=hidden**-0.5),
                "down": normal(hidden, ffn, scale=options.ffn**-0.5),
                "keys": normal(*cached, scale=1),
                "values": normal(*cached, scale=1),
            }
            for _ in range(options.layers)
        ]
        self.head = normal(options.vocabulary // size, hidden, scale=hidden**-0.5)
        self.heads, self.depth = heads, depth

    def inputs(self, batch: int, seed: int) -> Tensor:
        """[batch, hidden], alike on all ranks."""
        random = torch.Generator(self.device).manual_seed(seed)
        made = torch.randn(batch, self.options.hidden, device=self.device, generator=random)
        return made.to(self.dtype)

    def _attention(self, layer: Mapping[str, Tensor], x: Tensor, slots: slice) -> Tensor:
        queries, key, value = functional.linear(self._normed(x), layer["qkv"]).view(
            x.shape[0], 3, self.heads, self.depth
        ).unbind(1)
        keys, values = layer["keys"][slots], layer["values"][slots]
        keys[:, :, -1], values[:, :, -1] = key, value
        found = functional.scaled_dot_product_attention(queries.unsqueeze(2), keys, values)
        return functional.linear(found.reshape(x.shape[0], -1), layer["out"])

    def _mlp(self, layer: Mapping[str, Tensor], x: Tensor, slots: slice) -> Tensor:
        gate, up = functional.linear(self._normed(x), layer["gated"]).chunk(2, -1)
        return functional.linear(functional.silu(gate) * up, layer["down"])

    def _logits(self, x: Tensor, slots: slice) -> Tensor:
        return functional.linear(self._normed(x), self.head)

    def _normed(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, x.shape[-1:])

    def step(
        self, x: Tensor, parts: Sequence[slice], with_sums: bool = True
    ) -> tuple[Tensor, Tensor]:
        """The last hidden state, [batch, hidden], and this rank's logits, [batch, vocabulary /
        ranks].

        ``parts``: which slots of the cache the rows have. With one part all rows are computed at
        once, as servers do. With a part for each row all but the sums is computed row by row, so
        that a row's bits can depend on the others through the sums alone."""

        def local(function: Callable[[Tensor, slice], Tensor]) -> Tensor:
            if len(parts) == 1:
                return function(x, parts[0])
            return torch.cat([function(x[i : i + 1], parts[i]) for i in range(len(parts))])

        for layer in self.layers:
            for half in (self._attention, self._mlp):
                # Bound now: local() calls it at once.
                found = local(lambda rows, slots, half=half, layer=layer: half(layer, rows, slots))
                if with_sums:
                    dist.all_reduce(found)
                x = x + found
        return x, local(self._logits)


class Steps:
    """Answers the orders of tensor_parallel.py."""

    def __init__(self, options: argparse.Namespace, device: torch.device) -> None:
        self.options, self.device = options, device
        self.decoder: Decoder | None = None
        self.ready: dict[tuple[int, str], Callable[[], Any]] = {}

    def __call__(self, order: Mapping[str, Any]) -> dict[str, Any]:
        if self.decoder is None:  # after all launches have come up, one at a time
            self.decoder = Decoder(self.options, self.device)
        with torch.inference_mode():
            if order["do"] == "about":
                self.decoder.step(self.decoder.inputs(1, 1), [slice(0, 1)])
                return ranks.about(self.device)
            if order["do"] == "time":
                step = self._made_ready(order["batch"], order["mode"])
                for _ in range(_WARM_STEPS):
                    step()
                return {"ms": ranks.elapsed_ms(step, self.options.steps, self.device)}
            return self._bits()

    def _made_ready(self, batch: int, mode: str) -> Callable[[], Any]:
        """``mode``: "eager", "captured", or "no sums" (captured on GPUs)."""
        if (batch, mode) not in self.ready:
            decoder = self.decoder
            assert decoder is not None
            x, parts, with_sums = decoder.inputs(batch, 1), [slice(0, batch)], mode != "no sums"

            def eager() -> None:
                decoder.step(x, parts, with_sums)

            step: Callable[[], Any] = eager
            if mode != "eager" and self.device.type == "cuda":
                for _ in range(_WARM_STEPS):
                    eager()
                # Its replay keeps what it holds alive.
                step = ranks.captured(eager)[0].replay
            self.ready[batch, mode] = step
        return self.ready[batch, mode]

    def _bits(self) -> dict[str, Any]:
        """Elements of one request's results that differ from those of the request alone: ``hidden``
        and ``logits`` by whether eager or captured, of so many ``elements``; ``control``: the same
        without sums, where only the test itself could be wrong."""
        known: dict[bool, tuple[Tensor, Tensor]] = {}
        counts: dict[str, dict[str, int]] = {}
        for mode, batch, position in self._cases():
            with_sums = mode != "control"
            hidden, logits = (
                found[position].clone() for found in self._request(mode, batch, position)
            )
            if batch == 1:
                known.setdefault(with_sums, (hidden, logits))
            count = counts.setdefault(mode, {"hidden": 0, "logits": 0, "elements": 0, "calls": 0})
            # Each rank has the whole hidden state, and logits of its own.
            count["hidden"] += ranks.largest(ranks.differing(hidden, known[with_sums][0]))
            count["logits"] += sum(ranks.everyone(ranks.differing(logits, known[with_sums][1])))
            count["elements"] += hidden.numel() + logits.numel() * dist.get_world_size()
            count["calls"] += 1
        return {
            mode: {name: int(value) for name, value in count.items()}
            for mode, count in counts.items()
        }

    def _cases(self) -> Iterator[tuple[str, int, int]]:
        """Eager before captured; the request alone first."""
        modes = ["control", "eager", *(["captured"] if self.device.type == "cuda" else [])]
        for mode in modes:
            batches = self.options.batches if mode == "captured" else range(1, 1 + self.options.most_batch)
            for batch in sorted({1, *batches}):
                for position in sorted({0, batch // 2, batch - 1}):
                    yield mode, batch, position

    def _request(self, mode: str, batch: int, position: int) -> tuple[Tensor, Tensor]:
        """A step of a batch in which the request is the row at ``position``, with the first slot of
        the cache; the other rows are others with each batch."""
        decoder = self.decoder
        assert decoder is not None
        x = decoder.inputs(batch, 100 * batch + position)
        x[position] = decoder.inputs(1, _REQUEST_SEED)[0]
        others = iter(range(1, batch))
        slots = [0 if row == position else next(others) for row in range(batch)]
        parts = [slice(slot, slot + 1) for slot in slots]
        if mode != "captured":
            return decoder.step(x, parts, mode == "eager")
        graph, made = ranks.captured(lambda: decoder.step(x, parts))
        graph.replay()
        torch.cuda.synchronize()
        return tuple(one.clone() for one in made)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--orders", required=True)
    parser.add_argument("--device", required=True)
    add_sizes(parser)
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    device = ranks.start(options.device)
    ranks.serve(options.orders, Steps(options, device))


if __name__ == "__main__":
    main()
