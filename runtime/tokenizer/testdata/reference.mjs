// Writes reference.json: digests of the ids that Hugging Face tokenizers 0.23.2 computes for the release's tokenizer.
// reference_test.go builds the same texts and compares. Run where the packages are installed (about 10 minutes):
//
//   npm install --no-save tokenizers@0.23.2 && node reference.mjs TOKENIZER_JSON > reference.json
import { createHash } from 'node:crypto';
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';
const { Tokenizer } = createRequire(process.cwd() + '/')('tokenizers');

const source = readFileSync(process.argv[2], 'utf8');
const withAdded = Tokenizer.fromString(source);
const plain = Tokenizer.fromString(JSON.stringify({ ...JSON.parse(source), added_tokens: [] }));

// Every code point between neighbours of every class; code points are joined in groups of 64.
const template = ['a', 'b ', '1', '', '\n', ' ', '.', 'x  ', '\r\n中', 'ア', '\u0301', '!', '\t', ' 1 ', '='];
const pieces = [' ', '  ', '   ', '\n', '\r\n', '\n\n', '\t', '\u00a0', '\u3000', '\u2028', '\u0085', 'a', 'the', ' of', 'World', 'É', 'ß', 'ñ', 'é', 'İ',
  '1', '23', '2026', '½', '٣', 'Ⅷ', '.', ',', '!', '?', "'s", '"', '(', ')', '[', ']', '{', '}', '--', '==', '$', '€', '^', '`', '~', '|', '\\', '/', '#', '@',
  '中', '文', '龥', '龦', 'の', 'ア', '゠', '・', '゛', 'ー', '한', 'ไ', 'ह', 'ि', '\u0301', '\u20dd', '\u200d', '\u200b', '\ufeff', '\u0000', '\u007f', '😀', '👩', '𝒜', '𠀀',
  '\ue000', '\u0378', '\uffff', '<', '>', '</', '<|', '|>', '｜', '▁', '<think>', '</think>', '｜DSML｜', '<｜User｜>', '<｜Assistant｜>', '<｜▁pad▁｜>', '<dsml:', '<|EOT|>', '<｜User', 'aaaaaaaaaaaa', '            '];

const M = (1n << 64n) - 1n;
const G = 0x9e3779b97f4a7c15n;
function mix64(z) {
  z ^= z >> 30n; z = (z * 0xbf58476d1ce4e5b9n) & M;
  z ^= z >> 27n; z = (z * 0x94d049bb133111ebn) & M;
  return z ^ (z >> 31n);
}

// Text k of the random corpus: up to 48 parts, a third of them random characters below U+3400 or below U+20000.
function randomText(k) {
  let i = 0n;
  const s = mix64(BigInt(k));
  const next = (n) => Number((mix64((s + ++i * G) & M) >> 32n) % BigInt(n));
  let text = '';
  for (let left = 1 + next(48); left > 0; left--) {
    const kind = next(6);
    if (kind > 1) { text += pieces[next(pieces.length)]; continue; }
    const c = next(kind === 0 ? 0x3400 : 0x20000);
    if (c < 0xd800 || c > 0xdfff) text += String.fromCodePoint(c);
  }
  return text;
}

async function digest(tok, texts) {
  const h = createHash('sha256');
  for (let i = 0; i < texts.length; i += 256) {
    for (const e of await tok.encodeBatch(texts.slice(i, i + 256), { addSpecialTokens: false })) {
      const ids = e.getIds();
      h.update(Buffer.from(Uint32Array.from([ids.length, ...ids]).buffer));
    }
  }
  return h.digest('hex').slice(0, 16);
}

const out = { template, pieces, joined: [], single: [], random: [], random_plain: [] };
for (let block = 0; block < 0x110; block++) {
  const joined = [];
  const single = [];
  for (let lo = block << 12; lo < (block + 1) << 12; lo += 64) {
    let text = '';
    for (let c = lo; c < lo + 64; c++) {
      if (c >= 0xd800 && c <= 0xdfff) continue;
      const s = String.fromCodePoint(c);
      for (const t of template) text += t + s;
      single.push(s);
    }
    joined.push(text);
  }
  out.joined.push(await digest(withAdded, joined));
  out.single.push(await digest(withAdded, single));
}
for (let k = 0; k < 20000; k += 500) {
  const texts = [];
  for (let j = k; j < k + 500; j++) texts.push(randomText(j));
  out.random.push(await digest(withAdded, texts));
  out.random_plain.push(await digest(plain, texts));
}
console.log(JSON.stringify(out));
