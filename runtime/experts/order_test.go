package experts

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAnOrderIsReadBack(t *testing.T) {
	want := []Key{{1, 3}, {0, 0}, {1, 2}}
	got, err := DecodeOrder(EncodeOrder(2, 4, want), 2, 4)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestBadOrdersAreOneSentence(t *testing.T) {
	head := string(EncodeOrder(1, 2, nil))
	for text, want := range map[string]string{
		"":                             "must begin with",
		string(EncodeOrder(2, 2, nil)): "must begin with",
		head + "1 0\n":                 `line 2: "1" is none of 1 layers`,
		head + "0 0\n0 2\n":            `line 3: "2" is none of 2 experts`,
		head + "0\n":                   `"" is none of 2 experts`,
		head + "0 0\n0 1\n0 0\n":       "line 4: there are only 2 experts",
	} {
		if _, err := DecodeOrder([]byte(text), 1, 2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzDecodeOrder(f *testing.F) {
	f.Add(EncodeOrder(2, 3, []Key{{0, 1}, {1, 2}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		keys, err := DecodeOrder(b, 2, 3)
		if err != nil {
			return
		}
		again, err := DecodeOrder(EncodeOrder(2, 3, keys), 2, 3)
		if err != nil || !cmp.Equal(keys, again) {
			t.Fatal(again, err)
		}
		if _, err := New(Config{Layers: 2, Experts: 3, Slots: 4, Floor: 1}, keys); err != nil {
			t.Fatal(err)
		}
	})
}
