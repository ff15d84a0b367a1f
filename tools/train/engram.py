"""Engram hash constants and row ids (spec 4.12), vectorised over positions."""
import numpy as np


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % p for p in range(2, int(n**0.5) + 1))


class Hash:
    """Row ids of the n-gram tables of every Engram layer."""

    def __init__(self, c: dict, token_map: list[int]):
        self.layers, self.heads = c["engram_layer_ids"], c["engram_n_heads"]
        self.map, self.max_ngram = np.array(token_map, np.int64), c["engram_max_ngram_size"]
        self.classes = int(self.map.max()) + 1
        self.pad = int(self.map[c["engram_pad_token_id"]])
        self.mult, self.primes, self.offsets = {}, {}, {}
        bound, taken = max(1, ((2**63 - 1) // self.classes) // 2), set()
        for layer in self.layers:
            draw = np.random.default_rng(10007 * layer).integers(0, bound, size=self.max_ngram, dtype=np.int64)
            self.mult[layer] = [2 * int(x) + 1 for x in draw]
            cols = []
            for _ in range(2, self.max_ngram + 1):
                n = c["engram_vocab_size"]
                for _ in range(self.heads):
                    while n in taken or not _is_prime(n):
                        n += 1
                    taken.add(n)
                    cols.append(n)
            self.primes[layer] = cols
            self.offsets[layer] = [sum(cols[:i]) for i in range(len(cols))]

    def rows(self, layer: int) -> int:
        return sum(self.primes[layer])

    def __call__(self, layer: int, ids: np.ndarray) -> np.ndarray:
        """ids [B, S] of whole sequences from position 0 -> row ids [B, S, columns]."""
        b, s = ids.shape
        hist = np.concatenate([np.full((b, self.max_ngram - 1), self.pad), self.map[ids]], 1)
        back = [hist[:, self.max_ngram - 1 - k : self.max_ngram - 1 - k + s] for k in range(self.max_ngram)]
        out, r = [], back[0] * self.mult[layer][0]
        for k in range(1, self.max_ngram):
            r = r ^ (back[k] * self.mult[layer][k])
            for h in range(self.heads):
                col = (k - 1) * self.heads + h
                out.append(r % self.primes[layer][col] + self.offsets[layer][col])
        return np.stack(out, -1)
