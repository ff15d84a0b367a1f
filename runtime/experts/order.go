package experts

import (
	"bufio"
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// orderMagic begins the text of an order; the numbers of layers and of experts follow.
const orderMagic = "cedrun-expert-order-1"

// EncodeOrder writes keys, the best first, as text: a line for each, layer and expert.
func EncodeOrder(layers, experts int, keys []Key) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %d %d\n", orderMagic, layers, experts)
	for _, k := range keys {
		fmt.Fprintf(&b, "%d %d\n", k.Layer, k.Expert)
	}
	return b.Bytes()
}

// DecodeOrder reads what EncodeOrder wrote for a model of the same shape.
func DecodeOrder(b []byte, layers, experts int) ([]Key, error) {
	in := bufio.NewScanner(bytes.NewReader(b))
	if want := fmt.Sprintf("%s %d %d", orderMagic, layers, experts); !in.Scan() || in.Text() != want {
		return nil, fmt.Errorf("an order of experts must begin with %q", want)
	}
	var keys []Key
	for line := 2; in.Scan(); line++ {
		layer, expert, _ := strings.Cut(in.Text(), " ")
		l, err := strconv.Atoi(layer)
		if err != nil || l < 0 || l >= layers {
			return nil, fmt.Errorf("line %d: %q is none of %d layers", line, layer, layers)
		}
		e, err := strconv.Atoi(expert)
		if err != nil || e < 0 || e >= experts {
			return nil, fmt.Errorf("line %d: %q is none of %d experts", line, expert, experts)
		}
		if len(keys) == layers*experts {
			return nil, fmt.Errorf("line %d: there are only %d experts", line, layers*experts)
		}
		keys = append(keys, Key{l, e})
	}
	return keys, in.Err()
}
