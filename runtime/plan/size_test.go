package plan

import "testing"

func TestSizesAreReadWithUnits(t *testing.T) {
	for text, want := range map[string]int64{
		"24GiB": 24 << 30, "24 gb": 24e9, "1.5MiB": 3 << 19, "17179869184": 1 << 34, "64b": 64,
		"": 0, "GiB": 0, "-1": 0, "0": 0, "1e30": 0, "24 bananas": 0, "9999999TiB": 0,
	} {
		got, err := ParseSize(text)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q is %d bytes (%v), want %d", text, got, err, want)
		}
	}
}

func TestSizesAreWrittenInThreeDigits(t *testing.T) {
	for n, want := range map[int64]string{0: "0 kB", 12_345: "12 kB", 999_600: "1.0 MB", 17_000_000: "17.0 MB", 288_777_830_400: "289 GB", 20_440_000_000: "20.4 GB"} {
		if got := GB(n); got != want {
			t.Errorf("%d bytes are %q, want %q", n, got, want)
		}
	}
}
