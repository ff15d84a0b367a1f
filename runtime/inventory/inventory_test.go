package inventory

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"cedrun/runtime/checkpoint"
	"cedrun/runtime/config"
)

const testdata = "../../testdata/"

var minis = []string{"base", "wide", "vl", "sched40", "calm"}

func load(t *testing.T, dir string) *config.Config {
	t.Helper()
	c, err := config.Load(filepath.Join(testdata, dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func report(t *testing.T, dir string, context int) *Report {
	t.Helper()
	r, err := New(dir, load(t, dir), context)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// What the report of the released config says, word for word.
func TestReportOfTheRelease(t *testing.T) {
	want, err := os.ReadFile("testdata/release.txt")
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := report(t, "release", 0).Print(&got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); diff != "" {
		t.Error(diff)
	}
}

// The totals of spec model.md 1.3 and 1.4.
func TestCountsOfTheRelease(t *testing.T) {
	r := report(t, "release", 65536)
	for _, c := range []struct {
		name      string
		got, want int64
	}{
		{"parameters", r.Parameters.Total, 763_205_315_794},
		{"backbone", r.Parameters.Backbone, 551_880_835_184},
		{"Engram tables", r.Parameters.Engram, 196_613_849_600},
		{"DSpark", r.Parameters.Draft, 14_225_362_530},
		{"vision", r.Parameters.Vision, 485_268_480},
		{"active in prefill", r.Active.Prefill, 7_892_875_448},
		{"active in the decoder", r.Active.Decoder, 15_468_670_064 - 7_892_875_448},
		{"head", r.Active.Head, 129280*5120 + 5120},
		{"active in decode", r.Active.Decode, 15_468_670_064 + 129280*5120 + 5120},
		{"KV bytes per token", int64(r.KV.BytesPerToken), 890},
		{"windows", r.State.Windows, 2_703_360},
		{"open groups", r.State.OpenGroups, 12_288},
		{"look-back", r.State.LookBack, 3 * 4},
		{"KV cache", r.Memory.KV, 65536 * 890},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", c.name, c.got, c.want)
		}
	}
	total := int64(0)
	for _, f := range r.Formats {
		total += f.Bytes
	}
	if total != 510_286_023_000 {
		t.Errorf("%d bytes in all formats, the release has 510286023000", total)
	}
}

// The parts add up to the whole, whatever the geometry, and the formats to what the shards hold.
func TestPartsAddUp(t *testing.T) {
	for _, name := range minis {
		t.Run(name, func(t *testing.T) {
			c := load(t, "mini/"+name)
			r := report(t, "mini/"+name, 0)
			parts, formats := Counts{}, int64(0)
			for _, p := range r.Parameters.Parts {
				parts.Tensors += p.Tensors
				parts.Parameters += p.Parameters
				parts.Bytes += p.Bytes
			}
			for _, f := range r.Formats {
				formats += f.Bytes
			}
			p := &r.Parameters
			if sum := p.Backbone + p.Engram + p.Draft + p.Vision; parts.Parameters != p.Total || sum != p.Total || formats != parts.Bytes {
				t.Errorf("parts %+v, sum %d, formats %d, total %d", parts, sum, formats, p.Total)
			}
			ck, err := checkpoint.Open(filepath.Join(testdata, "mini", name), checkpoint.Options{NoMap: true})
			if err != nil {
				t.Fatal(err)
			}
			defer ck.Close()
			census, err := ck.Check(c)
			r.Store(c, ck, census, err)
			if diff := cmp.Diff(r.Formats, r.Stored.Formats); diff != "" || r.Stored.Fault != "" || r.Stored.Tensors != parts.Tensors || r.Stored.Bytes != formats {
				t.Errorf("stored %+v, want %d tensors and %d bytes\n%s", r.Stored, parts.Tensors, formats, diff)
			}
		})
	}
}

func TestScheduleJSONNamesSources(t *testing.T) {
	rows := report(t, "release", 0).Schedule
	for _, c := range []struct {
		layer int
		want  string
	}{
		{0, `{"layer":0,"ratio":0,"mode":"SWA","kv_from":null,"keys_from":null,"selection_from":null,"rope_theta":10000,"yarn":false}`},
		{14, `{"layer":14,"ratio":2,"mode":"Full","kv_from":14,"keys_from":14,"selection_from":14,"rope_theta":160000,"yarn":true,"extras":["Engram before it","compressor with gate"]}`},
		{28, `{"layer":28,"ratio":1,"mode":"Reindex","kv_from":20,"keys_from":20,"selection_from":28,"rope_theta":160000,"yarn":true,"extras":["inside the candidates"]}`},
		{39, `{"layer":39,"ratio":1,"mode":"Reuse","kv_from":20,"keys_from":null,"selection_from":36,"rope_theta":160000,"yarn":true,"extras":["feeds DSpark"]}`},
	} {
		got, err := json.Marshal(rows[c.layer])
		if err != nil || string(got) != c.want {
			t.Errorf("%s, %v\nwant %s", got, err, c.want)
		}
	}
}

func TestContextIsHeldAgainstTheModel(t *testing.T) {
	c := load(t, "mini/base")
	for _, context := range []int{-1, c.MaxPositions + 1} {
		if _, err := New("base", c, context); err == nil || !strings.Contains(err.Error(), "this model takes 1 to") {
			t.Errorf("context %d: %v", context, err)
		}
	}
	r := report(t, "mini/base", 65)
	if want := int64(128 * c.BytesPerToken()); r.Memory.KV != want {
		t.Errorf("KV of 65 tokens: %d bytes, want two pages, %d", r.Memory.KV, want)
	}
}

func TestAFaultIsReported(t *testing.T) {
	r := report(t, "mini/base", 0)
	r.Store(load(t, "mini/base"), nil, nil, os.ErrNotExist)
	var out bytes.Buffer
	if err := r.Print(&out); err != nil || !strings.Contains(out.String(), "STORED\nfaulty: "+os.ErrNotExist.Error()) {
		t.Errorf("%v\n%s", err, &out)
	}
}

// A model that keeps no global rows has no decoder either: a prompt goes through all of it.
func TestModelWithoutGlobalCache(t *testing.T) {
	c := load(t, "mini/base")
	c.KVSources, c.IndexSources, c.CandidateSource, c.CompressRatios = nil, nil, -1, make([]int, c.Layers)
	r, err := New("swa", c, 100)
	if err != nil {
		t.Fatal(err)
	}
	if r.Active.Prefill != r.Active.Decode-r.Active.Head || r.Active.Decoder != 0 || r.KV.BytesPerToken != 0 || r.Memory.KV != 0 || r.State.OpenGroups != 0 {
		t.Errorf("%+v %+v %+v", r.Active, r.KV, r.State)
	}
	var out bytes.Buffer
	if err := r.Print(&out); err != nil || strings.Count(out.String(), " SWA ") < 2 {
		t.Errorf("%v\n%s", err, &out)
	}
}

// Prefill averages what each row of a prompt runs through; in replay the rows before the last window end in the last KV
// source, where only its own rows are made.
func TestPrefillCountsRowsPerLayer(t *testing.T) {
	c := load(t, "release")
	a := CountActive(c)
	const prompt, last = 1 << 20, 20
	from := make([]int, c.Layers)
	if got := a.Prefill(from, prompt); got != a.Decode()-a.Head+a.Head/prompt {
		t.Errorf("all layers: %d", got)
	}
	for l := last; l < c.Layers; l++ {
		from[l] = prompt - c.Window
	}
	rows := int64(512*5120 + 512 + 128*512 + 128 + 5120) // compressor and its norm, index key and its norm, input norm
	want := (a.Encoder()*prompt + a.Decoder()*int64(c.Window) + rows*int64(prompt-c.Window) + a.Head) / prompt
	if got := a.Prefill(from, prompt); got != want {
		t.Errorf("replay: %d, want %d", got, want)
	}
}
