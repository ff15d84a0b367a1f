package publish

import (
	"context"
	"testing"
	"time"

	"github.com/rs/zerolog"

	ced "cedrun/cuda"
	"cedrun/runtime/engine"
	"cedrun/runtime/sample"
	"cedrun/runtime/telemetry"
)

// open starts a published engine.
func open(t *testing.T, dir string) (*Publisher, *engine.Instance, func()) {
	t.Helper()
	p := New(dir, "serve", "v1", zerolog.Nop(), nil)
	p.Address("http://here")
	inst, err := engine.Open(engine.Source{Dir: "../../../testdata/mini/calm"}, engine.Setup{Backend: ced.CPU, Context: 512, Slots: 2, Chunk: 64, Observe: p.Observe})
	if err != nil {
		t.Fatal(err)
	}
	return p, inst, func() {
		if err := p.Show(inst).Close(); err != nil {
			t.Error(err)
		}
		p.Close() // once more
	}
}

func snapshot(t *testing.T, dir string) *telemetry.Snapshot {
	t.Helper()
	found, err := telemetry.Find(dir)
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	c, err := telemetry.Dial(context.Background(), found[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.Snapshot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// measured waits until the limits are known.
func measured(t *testing.T, dir string) *telemetry.Limit {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if s := snapshot(t, dir); s.Model.Limit != nil {
			return s.Model.Limit
		}
	}
	t.Fatal("the limits are never measured")
	return nil
}

func TestASnapshotTellsWhatTheEngineDid(t *testing.T) {
	dir := t.TempDir()
	p, inst, end := open(t, dir)
	if s := snapshot(t, dir); s.Model != nil || s.Process.Command != "serve" || s.Process.Version != "v1" || s.Process.Address != "http://here" {
		t.Errorf("while the model is being loaded: %+v", s)
	}
	p.Show(inst)
	if s := snapshot(t, dir); s.Model == nil || s.Model.Running != 0 || s.Model.Decode.Tokens != 0 || s.Model.Decode.Active == 0 || s.Model.Prefill.Active != 0 {
		t.Errorf("before any request: %+v", s.Model)
	}
	prompt := make([]int32, 100)
	for i := range prompt {
		prompt[i] = int32(i%50 + 5)
	}
	g, err := inst.Submit(context.Background(), engine.Request{Prompt: prompt, MaxTokens: 20, Sampling: sample.Params{TopP: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if r := g.Wait(); r.Err != nil {
		t.Fatal(r.Err)
	}
	limit := measured(t, dir)
	m := snapshot(t, dir).Model
	if m.Prefill.Tokens != 100 || m.Prefill.Steps != 2 || m.Decode.Tokens != 19 || m.Prefill.Active == 0 || m.Prefix.Requests != 1 || m.Slots != 2 || m.KV[0].Pages != 16 {
		t.Errorf("%+v", m)
	}
	if limit.Read <= 0 || limit.Multiply <= 0 || m.Limit.Prompt <= 0 {
		t.Errorf("limits %+v", limit)
	}
	if r := telemetry.Between(nil, snapshot(t, dir)); r.Prefill == nil || r.Decode == nil || r.PrefillShare == nil || *r.PrefillShare <= 0 {
		t.Errorf("%+v", r)
	}
	end()
	if found, _ := telemetry.Find(dir); len(found) != 0 {
		t.Errorf("after the end: %v", found)
	}
}

// An engine that never rests is measured too, between two of its steps; its tokens stay the same.
func TestLimitsAreMeasuredWhileTheEngineRuns(t *testing.T) {
	dir := t.TempDir()
	p, inst, end := open(t, dir)
	defer end()
	p.Show(inst)
	run := func() (ids []int32) {
		g, err := inst.Submit(context.Background(), engine.Request{Prompt: []int32{5, 6, 7}, MaxTokens: 500, Sampling: sample.Params{TopP: 1}})
		if err != nil {
			t.Fatal(err)
		}
		for {
			k, ok := g.Next(context.Background())
			if !ok {
				return ids
			}
			ids = append(ids, k.ID)
		}
	}
	want := run()
	done := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			got := run()
			for i := range want {
				if i >= len(got) || got[i] != want[i] {
					t.Errorf("token %d differs", i)
					return
				}
			}
		}
	}()
	limit := measured(t, dir)
	for end := time.Now().Add(3 * time.Minute); limit.Step == 0 && time.Now().Before(end); {
		limit = snapshot(t, dir).Model.Limit // between two requests nothing decodes
	}
	close(stop)
	<-done
	if limit.Step <= 0 || limit.Bytes <= 0 {
		t.Errorf("%+v", limit)
	}
}

// A directory that cannot be had is no reason not to run.
func TestWithoutASocketTheEngineRuns(t *testing.T) {
	_, inst, end := open(t, "/dev/null/none")
	g, err := inst.Submit(context.Background(), engine.Request{Prompt: []int32{5, 6, 7}, MaxTokens: 3, Sampling: sample.Params{TopP: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if r := g.Wait(); r.Err != nil || r.Stats.DecodeSteps != 2 {
		t.Errorf("%+v", r)
	}
	end()
}
