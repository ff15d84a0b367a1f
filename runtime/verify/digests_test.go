package verify

import (
	"strings"
	"testing"
)

const (
	one = "1111111111111111111111111111111111111111111111111111111111111111"
	two = "ABCDEFabcdef0000000000000000000000000000000000000000000000000000"
)

func TestParseDigests(t *testing.T) {
	for _, c := range []struct {
		name, source, text string
		want               map[string]string
	}{
		{"sha256sum", "SHA256SUMS", one + "  a.safetensors\n" + two + " *b c.json\n", map[string]string{"a.safetensors": one, "b c.json": strings.ToLower(two)}},
		{"sha256sum --tag", "sums", "SHA256 (a (1).bin) = " + one, map[string]string{"a (1).bin": one}},
		{"comments, empty lines, CRLF", "sums", "# release\r\n\r\n" + one + "  a\r\n", map[string]string{"a": one}},
		{"names below the directory", "sums", one + "  ./a\n" + two + "  inference/b\n", map[string]string{"a": one, "inference/b": strings.ToLower(two)}},
		{"the same line twice", "sums", one + "  a\n" + one + "  a\n", map[string]string{"a": one}},
		{"one file's own", "dir/a.safetensors.sha256", one + "\n", map[string]string{"a.safetensors": one}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := ParseDigests(c.source, []byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			if len(d.names) != len(c.want) || len(d.hex) != len(c.want) {
				t.Errorf("got %v", d.hex)
			}
			for name, sum := range c.want {
				if d.hex[name] != sum || !d.has(name) {
					t.Errorf("%s: %s, want %s", name, d.hex[name], sum)
				}
			}
		})
	}
	for _, c := range []struct{ name, text, want string }{
		{"empty", "\n", "sums lists no digest"},
		{"SHA-1", one[:40] + "  a", "sums, line 1: expected 64 hexadecimal digits"},
		{"no name", one, "line 1: expected"},
		{"an HTML page", "<html>", "line 1: expected"},
		{"absolute", one + "  /etc/passwd", `"/etc/passwd" lies outside the checkpoint's directory`},
		{"above the directory", one + "  a/../../b", `"../b" lies outside`},
		{"two digests of a file", one + "  a\n" + two + "  a", "line 2: a second, different digest of a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := ParseDigests("sums", []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func FuzzParseDigests(f *testing.F) {
	f.Add("SHA256SUMS", []byte(one+"  a\n"+two+" *b\n"))
	f.Add("a.sha256", []byte(one))
	f.Add("sums", []byte("SHA256 (a) = "+one))
	f.Fuzz(func(t *testing.T, source string, data []byte) {
		d, err := ParseDigests(source, data)
		if err != nil {
			return
		}
		if len(d.names) == 0 || len(d.names) != len(d.hex) {
			t.Errorf("names %q of %v", d.names, d.hex)
		}
		for name, sum := range d.hex {
			if strings.HasPrefix(name, "/") || strings.HasPrefix(name, "..") || len(sum) != 64 {
				t.Errorf("%q: %q", name, sum)
			}
		}
	})
}
