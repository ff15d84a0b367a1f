"""Training rows: text, chat-wrapped text and key-value recall documents; and the recall cases for evaluation.

Every row is a function of (seed, step, rank), so a resumed run sees the same data. A recall document is made of verses and
of lines "The sign of NAME is VALUE."; names and values are single tokens drawn anew for every document, so a repeated line
can only be completed by looking the value up.

    python3 data.py WORKDIR OUT.json     writes the recall cases (50 for each distance)
"""
import argparse
import json
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

import tokenizer as tok

WINDOW = 32
NAMES = ("Moses David Israel Judah Saul Jacob Aaron Solomon Jesus Paul Peter Abraham Joseph Jerusalem Egypt Babylon Pharaoh Samuel "
         "Joshua Isaac Ephraim Benjamin Manasseh Levi Reuben Gilead Esau Ahab Joab Absalom Hezekiah Jonathan Zion Moab Edom Syria "
         "Assyria Canaan Noah Adam Simon James John Mary Pilate Jeremiah Nebuchadnezzar Daniel Jordan Samaria").split()
VALUES = ("gold silver water bread wine oil fire stone wood brass iron blood corn fruit seed grass earth dust wind rain snow light "
          "darkness salt honey milk flesh meat fish sheep ox lion horse cloud lamb ram dove eagle sword shield spear bow rod staff "
          "crown ring horn trumpet lamp candlestick altar tent house gate wall tower door bed table book ship vineyard well").split()
DISTANCES = (1, 2, 4, 8, 16)


class Source:
    """Tokenised corpus with everything the row makers need."""

    def __init__(self, workdir: Path, part: str):
        self.t = Tokenizer.from_file(str(workdir / "tokenizer.json"))
        text = (workdir / f"{part}.txt").read_text()
        self.bos, self.eos, self.user, self.assistant, self.no_think = (
            self.t.token_to_id(s) for s in (tok.BOS, tok.EOS, tok.USER, tok.ASSISTANT, tok.END_THINK))
        self.ids = np.array(self.encode(text), np.int64)
        self.verses = [v for v in text.split("\n") if v]
        self.verse_ids = [self.encode(v + "\n") for v in self.verses]
        self.names, self.values = ([w for w in words if len(self.encode(" " + w)) == 1] for words in (NAMES, VALUES))
        self.mentions = {n: np.array([i for i, v in enumerate(self.verses) if n in v.split()]) for n in self.names}
        probe = self.encode("The sign of Moses is gold.\n")
        self.fact_head, self.fact_tail = self.encode("The sign of"), self.encode(".\n")
        self.verb = self.encode("The sign of Moses is")[-1:]
        assert probe == self.fact_head + self.encode(" Moses") + self.verb + self.encode(" gold") + self.fact_tail
        self.name_ids = [self.encode(" " + n)[0] for n in self.names]
        self.value_ids = [self.encode(" " + v)[0] for v in self.values]

    def encode(self, text: str) -> list[int]:
        return self.t.encode(text, add_special_tokens=False).ids

    def text_row(self, rng, n):
        """n + 1 tokens of running text after BOS."""
        a = rng.integers(len(self.ids) - n)
        return [self.bos] + self.ids[a : a + n].tolist(), [1.0] * n, []

    def chat_row(self, rng, n):
        """Chat turns until the row is full: continue the opening words, or a passage that mentions a name."""
        row = []
        while len(row) <= n:
            length = int(rng.integers(2, 7))
            if rng.random() < 0.5:
                name = self.names[rng.integers(len(self.names))]
                at = self.mentions[name]
                if not len(at):
                    continue
                a = int(at[rng.integers(len(at))])
                ask = str(rng.choice(["Tell me of %s.", "Speak of %s.", "What is written of %s?", "Who is %s?"])) % name
                answer = "\n".join(self.verses[a : a + length])
            else:
                a = int(rng.integers(len(self.verses)))
                text = "\n".join(self.verses[a : a + length])
                words = text.split(" ")
                cut = int(rng.integers(3, min(16, max(5, len(words)))))
                ask, answer = " ".join(words[:cut]), " " + " ".join(words[cut:])
                if rng.random() < 0.5:
                    ask, answer = "Continue: " + ask, answer.lstrip()
            row += [self.bos, self.user] + self.encode(ask) + [self.assistant, self.no_think] + self.encode(answer) + [self.eos]
        return row[: n + 1], [1.0] * n, []

    def fact(self, name, value):
        return self.fact_head + [self.name_ids[name]] + self.verb + [self.value_ids[value]] + self.fact_tail

    def recall_row(self, rng, n, hard):
        """hard in 0..1: more filler and fewer repeats. Third result: [(position that predicts the value, row of the value)]."""
        row, weight, guide = [self.bos], [], []
        names = rng.permutation(len(self.names))[: rng.integers(3, 13)]
        values = rng.integers(len(self.values), size=len(names))
        filler = rng.random() * (0.2 + 0.7 * hard)
        last, count = {}, {}
        vpos = len(self.fact_head) + 2
        while len(row) <= n:
            if rng.random() < filler:
                v = self.verse_ids[rng.integers(len(self.verse_ids))]
                row += v
                weight += [1.0] * len(v)
                continue
            k = int(rng.integers(len(names)))
            if k not in last and len(last) > 2 and rng.random() < 0.4:
                k = list(last)[rng.integers(len(last))]
            if count.get(k, 0) > 3:
                values[k], count[k] = rng.integers(len(self.values)), 0
                last.pop(k)
            line, at = self.fact(names[k], values[k]), len(row) + vpos
            w = [0.3] * len(line)
            w[vpos] = 0.0
            if k in last:
                w[vpos] = 12.0
                guide.append((at - 1, last[k]))
            row += line
            weight += w
            last[k], count[k] = at, count.get(k, 0) + 1
        return row[: n + 1], weight[:n], [g for g in guide if g[0] < n]

    def batch(self, seed, step, rank, rows, n, recall, chat, hard):
        """ids [rows, n+1], weights [rows, n], guide (row, position, value row) as three arrays."""
        rng = np.random.default_rng([seed, step, rank])
        ids, weights, guide = [], [], []
        for b in range(rows):
            u = rng.random()
            if u < recall:
                r, w, g = self.recall_row(rng, n, hard)
            elif u < recall + chat:
                r, w, g = self.chat_row(rng, n)
            else:
                r, w, g = self.text_row(rng, n)
            ids.append(r)
            weights.append(w)
            guide += [(b, *x) for x in g]
        return np.array(ids), np.array(weights, np.float32), np.array(guide, np.int64).reshape(-1, 3).T


def recall_cases(src: Source, seed: int, each: int) -> list[dict]:
    """Prompts whose last line repeats a fact stated distance windows earlier, with five other facts and verses between.

    Distance counts tokens from the stated value to the place where it must be predicted.
    """
    rng, out = np.random.default_rng(seed), []
    for d in DISTANCES:
        for _ in range(each):
            names = rng.permutation(len(src.names))[:6]
            values = rng.permutation(len(src.values))[:6]
            query = src.fact_head + [src.name_ids[names[0]]] + src.verb
            gap = d * WINDOW - len(query) - len(src.fact_tail)
            line = len(src.fact(0, 0))
            between = min(int(rng.integers(6)), gap // (2 * line)) if gap > 2 * line else 0
            lead = _fill(src, rng, 64 + line * (5 - between), 5 - between, names[1 : 6 - between], values[1 : 6 - between])
            middle = _fill(src, rng, gap, between, names[6 - between :], values[6 - between :])
            ids = lead + src.fact(names[0], values[0]) + middle + query
            prompt = src.t.decode(ids)
            assert src.encode(prompt) == ids
            out.append(dict(distance_windows=d, prompt=prompt, answer=" " + src.values[values[0]]))
    return out


def _fill(src, rng, n, facts, names, values):
    """About n tokens (never more) of whole lines: the given facts among verses, the last verse cut to fit at a word."""
    lines = [src.fact(a, b) for a, b in zip(names[:facts], values[:facts])]
    room = n - sum(map(len, lines))
    while room > 0:
        v = src.verse_ids[rng.integers(len(src.verse_ids))]
        if len(v) > room:
            text = src.t.decode(v[: room - 2]).rsplit(" ", 1)[0]
            v = src.encode(text + ".\n") if room > 8 and text else []
            room = len(v)
        if v:
            lines.append(v)
        room -= len(v)
    return [i for k in rng.permutation(len(lines)) for i in lines[k]]


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("workdir", type=Path)
    ap.add_argument("out", type=Path)
    a = ap.parse_args()
    src = Source(a.workdir, "heldout")
    cases = recall_cases(src, 41, 50)
    text = ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases)
    a.out.write_text('{"window": %d, "bos": true, "cases": [\n%s\n]}\n' % (WINDOW, text))
    print(f"{a.out}: {len(cases)} cases, {len(src.names)} names, {len(src.values)} values")


if __name__ == "__main__":
    main()
