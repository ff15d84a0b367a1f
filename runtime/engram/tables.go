package engram

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
)

// TablesFile is the optional file of a checkpoint with its token map and hash constants.
const TablesFile = "engram_tables.json"

// tables is the content of TablesFile. Multipliers exceed 2^53 and are never read as floating point.
type tables struct {
	TokenMap   []int32                 `json:"token_map"`
	PadTokenID int                     `json:"pad_token_id"`
	Layers     map[string]layerColumns `json:"layers"`
}

type layerColumns struct {
	Multipliers []decimal `json:"multipliers"`
	Primes      []decimal `json:"primes"`
	Offsets     []decimal `json:"offsets"`
}

// decimal is an integer written as a JSON string or number.
type decimal int64

func (d *decimal) UnmarshalJSON(b []byte) error {
	v, err := strconv.ParseInt(string(bytes.Trim(b, `"`)), 10, 64)
	if err != nil {
		return fmt.Errorf("%s is not an integer below 2^63", b)
	}
	*d = decimal(v)
	return nil
}

// ParseTables reads the content of an engram_tables.json and compares its constants with those that p yields. It returns
// the token map; an error names the first value that differs.
func ParseTables(data []byte, p Params) (tokenMap []int32, err error) {
	var t tables
	if err := json.Unmarshal(data, &t); err != nil {
		return nil, fmt.Errorf("reading %s: %w", TablesFile, err)
	}
	layers, err := Derive(p)
	if err != nil {
		return nil, err
	}
	if t.PadTokenID != p.PadToken {
		return nil, fmt.Errorf("%s: pad_token_id is %d, but the configuration says %d", TablesFile, t.PadTokenID, p.PadToken)
	}
	if len(t.Layers) != len(layers) {
		return nil, fmt.Errorf("%s has %d layers, but the configuration says %d", TablesFile, len(t.Layers), len(layers))
	}
	for _, l := range layers {
		got, ok := t.Layers[strconv.Itoa(l.ID)]
		if !ok {
			return nil, fmt.Errorf("%s lacks layer %d", TablesFile, l.ID)
		}
		for _, column := range []struct {
			name string
			got  []decimal
			want []int64
		}{
			{"multipliers", got.Multipliers, l.Multipliers},
			{"primes", got.Primes, l.Primes},
			{"offsets", got.Offsets, l.Offsets},
		} {
			if len(column.got) != len(column.want) {
				return nil, fmt.Errorf("%s: layer %d has %d %s, want %d", TablesFile, l.ID, len(column.got), column.name, len(column.want))
			}
			for i, want := range column.want {
				if int64(column.got[i]) != want {
					return nil, fmt.Errorf("%s: layer %d %s[%d] is %d, but the rule gives %d", TablesFile, l.ID, column.name, i, column.got[i], want)
				}
			}
		}
	}
	return t.TokenMap, nil
}

// Load builds the hasher of a checkpoint. The token map comes from engram_tables.json when the checkpoint has one, and
// must then agree with v unless v is nil; otherwise it is derived from v, whose tokenizer.json in the checkpoint keys
// the cache. cache may be nil.
func Load(checkpoint fs.FS, p Params, v Vocabulary, cache *Cache) (*Hasher, error) {
	var derived []int32
	if v != nil {
		key, err := fs.ReadFile(checkpoint, "tokenizer.json")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("deriving the Engram token map: %w", err)
		}
		if err != nil {
			cache = nil
		}
		derived = cache.tokenMap(sha256.Sum256(key), v)
	}
	data, err := fs.ReadFile(checkpoint, TablesFile)
	switch {
	case err == nil:
		tokenMap, err := ParseTables(data, p)
		if err != nil {
			return nil, err
		}
		if derived != nil {
			if err := CompareTokenMaps(tokenMap, derived); err != nil {
				return nil, fmt.Errorf("%s: %w", TablesFile, err)
			}
		}
		return NewHasher(p, tokenMap)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("reading the Engram tables: %w", err)
	case derived == nil:
		return nil, fmt.Errorf("the checkpoint has neither a tokenizer.json nor an %s: one of them must give the Engram token map", TablesFile)
	}
	return NewHasher(p, derived)
}
