package profile

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestARecordingTravelsWhole(t *testing.T) {
	rec, works := made()
	rec.Dropped, rec.LeftOut, rec.Steps[3].Depth = 2, 1, 70
	sent, err := json.Marshal(Reply{subject(), json.RawMessage(`{"a":1}`), rec})
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeReply(sent)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rec, got.Recording); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(New(subject(), rec, works, nil), New(got.Subject, got.Recording, works, nil)); diff != "" {
		t.Error(diff)
	}
	if string(got.Config) != `{"a":1}` {
		t.Errorf("config %s", got.Config)
	}
}

func TestWhatIsNoRecordingIsRefused(t *testing.T) {
	for name, tc := range map[string]struct{ reply, want string }{
		"nothing":          {``, "not an answer"},
		"no recording":     {`{}`, "without a recording"},
		"another thing":    {`{"recording":[1]}`, "recording: json"},
		"overlapping":      {`{"recording":{"steps":[{"began_ns":5,"took_ns":9},{"began_ns":13,"took_ns":1}]}}`, "step 1 lasts 1 ns from 13 on, the one before ends at 14"},
		"endless":          {`{"recording":{"steps":[{"took_ns":9223372036854775807}]}}`, "step 0 lasts"},
		"negative rows":    {`{"recording":{"steps":[{"prefill":-1}]}}`, "step 0 of -1"},
		"negative count":   {`{"recording":{"dropped_events":-1}}`, "negative count"},
		"half an event":    {`{"recording":{"names":["a"],"steps":[{"took_ns":9,"events":[0,0,0,0]}]}}`, "4 numbers of events"},
		"unknown name":     {`{"recording":{"names":["a"],"steps":[{"took_ns":9,"events":[1,0,0,0,1]}]}}`, "an event of name 1"},
		"layer":            {`{"recording":{"names":["a"],"steps":[{"took_ns":9,"events":[0,0,-2,0,1]}]}}`, "layer -2"},
		"outside its step": {`{"recording":{"names":["a"],"steps":[{"took_ns":9,"events":[0,0,0,8,2]}]}}`, "an event of 2 ns at 8 in a step of 9"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := DecodeReply([]byte(tc.reply)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// What another process sends makes a report whose sums hold, or an error, and nothing that moves a cursor.
func FuzzDecodeReply(f *testing.F) {
	rec, works := made()
	rec.Steps = rec.Steps[:2]
	sent, err := json.Marshal(Reply{subject(), nil, rec})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sent)
	f.Add([]byte(`{"subject":{"model":"\u001b[2J"},"recording":{"names":["","head"],"steps":[{"took_ns":9,"events":[0,1,0,0,1]}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := DecodeReply(data)
		if err != nil {
			return
		}
		report := New(r.Subject, r.Recording, works, &Limits{Read: 1, BF16: 1, F32: 1})
		for _, p := range report.Phases {
			sum := p.Unaccounted
			for _, x := range p.Rows {
				sum += x.Took
			}
			if sum != p.Took {
				t.Errorf("rows and the rest sum to %v of %v", sum, p.Took)
			}
		}
		var out strings.Builder
		if err := report.Print(&out, true); err != nil || strings.ContainsAny(out.String(), "\x1b\r\x07") {
			t.Errorf("%q, %v", out.String(), err)
		}
		if err := report.WriteTrace(&out, r.Recording); err != nil {
			t.Error(err)
		}
	})
}

func TestAProcessAnswersWithWhatItRecorded(t *testing.T) {
	inst, recorder := start(t, "base")
	answer := recorder.Answer(func() (Subject, json.RawMessage, error) { return subject(), json.RawMessage(`{}`), nil })
	ctx, cancel := context.WithCancel(context.Background())
	got := make(chan *Reply)
	go func() {
		v, err := answer(ctx, json.RawMessage(`{"seconds":500}`))
		if err != nil {
			t.Error(err)
		}
		b, err := json.Marshal(v)
		if err != nil {
			t.Error(err)
		}
		r, err := DecodeReply(b)
		if err != nil {
			t.Error(err)
		}
		got <- r
	}()
	waitFor(recorder)
	q := request(inst, 20, 4)
	g, err := inst.Submit(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	g.Wait()
	recorder.settle(20 + 3)
	cancel() // the server's end
	r := New(Subject{}, (<-got).Recording, nil, nil)
	sums(t, r)
	if len(r.Phases) != 2 || r.Phases[0].Tokens != 20 || r.Phases[1].Tokens != 3 {
		t.Errorf("%+v", r.Phases)
	}
	loading := errors.New("the model is being loaded")
	for args, want := range map[string]string{
		`{"seconds":0}`: "0 seconds: use more than 0 and at most 600", `{"seconds":1e9}`: "at most 600", `{`: "arguments", `{"seconds":1}`: loading.Error(),
	} {
		_, err := recorder.Answer(func() (Subject, json.RawMessage, error) { return Subject{}, nil, loading })(context.Background(), json.RawMessage(args))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", args, err, want)
		}
	}
}
