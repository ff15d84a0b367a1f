package load

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// SLO is an objective; zero limits do not count. A request meets it when it was answered within all of them.
type SLO struct {
	TTFT    time.Duration // to the first token
	ITL     time.Duration // between tokens, the request's mean
	Latency time.Duration // to the end
}

// ParseSLO reads "ttft=500ms,itl=50ms,e2e=10s", each at most once.
func ParseSLO(s string) (o SLO, err error) {
	if s == "" {
		return o, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		at := map[string]*time.Duration{"ttft": &o.TTFT, "itl": &o.ITL, "e2e": &o.Latency}[name]
		if !ok || at == nil {
			return o, fmt.Errorf("%q: use ttft=TIME, itl=TIME and e2e=TIME with commas between, as in ttft=500ms,itl=50ms", part)
		}
		if *at != 0 {
			return o, fmt.Errorf("%s twice", name)
		}
		if *at, err = time.ParseDuration(value); err != nil || *at <= 0 {
			return o, fmt.Errorf("%s=%s: use a time like 500ms or 2s", name, value)
		}
	}
	return o, nil
}

func (o SLO) String() string {
	var parts []string
	for _, x := range []struct {
		name string
		d    time.Duration
	}{{"ttft", o.TTFT}, {"itl", o.ITL}, {"e2e", o.Latency}} {
		if x.d > 0 {
			parts = append(parts, x.name+"="+x.d.String())
		}
	}
	return strings.Join(parts, ",")
}

// Met says whether a request met the objective.
func (o SLO) Met(r *Record) bool {
	within := func(limit time.Duration, s float64) bool { return limit == 0 || s <= limit.Seconds() }
	return r.OK() && within(o.TTFT, r.TTFT()) && within(o.ITL, r.PerToken()) && within(o.Latency, r.Latency())
}

// Spread summarises values; zero if there are none. Percentiles are values that occurred (nearest rank).
type Spread struct {
	Count int     `json:"count"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// NewSpread summarises v, which it sorts.
func NewSpread(v []float64) Spread {
	if len(v) == 0 {
		return Spread{}
	}
	slices.Sort(v)
	rank := func(p float64) float64 { return v[max(0, int(math.Ceil(p*float64(len(v))))-1)] }
	sum := 0.
	for _, x := range v {
		sum += x
	}
	return Spread{len(v), sum / float64(len(v)), rank(0.5), rank(0.9), rank(0.99), v[len(v)-1]}
}

// Report is a run in figures. Times are in seconds.
type Report struct {
	URL         string  `json:"url"`
	Model       string  `json:"model"`
	Loop        string  `json:"loop"`        // open or closed
	Concurrency int     `json:"concurrency"` // of a closed loop
	Rate        float64 `json:"rate"`        // requests a second that were due, in an open loop
	Sessions    int     `json:"sessions"`
	Planned     int     `json:"planned"` // requests of the trace
	Interrupted bool    `json:"interrupted"`
	Seconds     float64 `json:"seconds"`

	OK         int               `json:"ok"`
	Failed     int               `json:"failed"`
	Unfinished int               `json:"unfinished"`     // cut off by an interrupt
	Refused    int               `json:"refused"`        // times that the server said to come back later and the request did
	Errors     map[string]int    `json:"errors"`         // failed requests, by kind
	Examples   map[string]string `json:"error_examples"` // a message of each kind

	TTFT     Spread `json:"ttft"`
	ITL      Spread `json:"itl"`       // between pieces of all streams
	PerToken Spread `json:"per_token"` // means of requests
	Latency  Spread `json:"e2e"`
	Lag      Spread `json:"lag"` // from when a request was due to when it was sent

	PromptTokens int     `json:"prompt_tokens"`
	CachedTokens int     `json:"cached_tokens"`
	CachedShare  float64 `json:"cached_share"`
	Tokens       int     `json:"tokens"`
	Counted      bool    `json:"tokens_counted"` // by the server, not by pieces
	RequestRate  float64 `json:"requests_per_second"`
	PromptRate   float64 `json:"prompt_tokens_per_second"`
	TokenRate    float64 `json:"tokens_per_second"`

	SLO      string  `json:"slo"`
	Good     int     `json:"good"` // answered requests that met the objective
	Goodput  float64 `json:"goodput"`
	GoodRate float64 `json:"good_share"` // of all that ended
}

// Report sums a run up under an objective.
func (x *Result) Report(c *Client, o Options, slo SLO) *Report {
	r := &Report{
		URL: c.base, Model: c.model, Loop: "closed", Concurrency: o.Concurrency, Sessions: len(x.Trace.Sessions), Planned: x.Trace.Requests(),
		Interrupted: x.Interrupted, Seconds: x.Elapsed.Seconds(), Unfinished: x.Unfinished, Errors: map[string]int{}, Examples: map[string]string{},
		SLO: slo.String(), Counted: true,
	}
	if x.Trace.Scheduled {
		r.Loop, r.Concurrency, r.Rate = "open", 0, x.Trace.rate()
	}
	var ttft, itl, per, latency, lag []float64
	for i := range x.Records {
		q := &x.Records[i]
		r.Refused += q.Retries
		lag = append(lag, q.Sent-q.Due)
		if !q.OK() {
			r.Failed++
			if r.Errors[q.Kind]++; r.Errors[q.Kind] == 1 {
				r.Examples[q.Kind] = q.Message
			}
			continue
		}
		r.OK++
		r.PromptTokens, r.CachedTokens, r.Tokens = r.PromptTokens+q.PromptTokens, r.CachedTokens+q.CachedTokens, r.Tokens+q.Tokens
		r.Counted = r.Counted && q.Counted
		latency = append(latency, q.Latency())
		if q.First > 0 {
			ttft = append(ttft, q.TTFT())
		}
		if t := q.PerToken(); t > 0 {
			per = append(per, t)
		}
		itl = append(itl, q.Gaps...)
		if slo.Met(q) {
			r.Good++
		}
	}
	r.TTFT, r.ITL, r.PerToken, r.Latency, r.Lag = NewSpread(ttft), NewSpread(itl), NewSpread(per), NewSpread(latency), NewSpread(lag)
	over := func(a, b float64) float64 {
		if b == 0 {
			return 0
		}
		return a / b
	}
	r.CachedShare = over(float64(r.CachedTokens), float64(r.PromptTokens))
	r.RequestRate, r.PromptRate, r.TokenRate = over(float64(r.OK), r.Seconds), over(float64(r.PromptTokens), r.Seconds), over(float64(r.Tokens), r.Seconds)
	r.Goodput, r.GoodRate = over(float64(r.Good), r.Seconds), over(float64(r.Good), float64(r.OK+r.Failed))
	return r
}

// rate is how many requests a second a scheduled trace asks for.
func (t *Trace) rate() float64 {
	first, last := time.Duration(math.MaxInt64), time.Duration(0)
	for _, s := range t.Sessions {
		first, last = min(first, s[0].Due), max(last, s[len(s)-1].Due)
	}
	if last <= first {
		return 0
	}
	return float64(t.Requests()-1) / (last - first).Seconds()
}

// Print writes the report for people, in 80 columns.
func (r *Report) Print(w io.Writer) error {
	fmt.Fprintf(w, "%s, model %s\n", r.URL, r.Model)
	sessions := "1 session"
	if r.Sessions != 1 {
		sessions = fmt.Sprintf("%d sessions", r.Sessions)
	}
	if r.Loop == "open" {
		fmt.Fprintf(w, "open loop: %d requests in %s, %s due a second; times count from then\n", r.Planned, sessions, figure(r.Rate))
	} else {
		fmt.Fprintf(w, "closed loop: %d requests in %s, %d at a time\n", r.Planned, sessions, min(r.Concurrency, r.Sessions))
		if r.Sessions < r.Concurrency {
			fmt.Fprintf(w, "fewer sessions than --concurrency %d: give more requests, or fewer turns to each\n", r.Concurrency)
		}
	}
	if r.Interrupted {
		fmt.Fprintln(w, "interrupted: figures of the requests that had ended")
	}
	fmt.Fprintf(w, "\n%d answered in %s s", r.OK, figure(r.Seconds))
	for _, x := range []struct {
		n    int
		what string
	}{{r.Failed, "failed"}, {r.Refused, "times told to come back later"}, {r.Unfinished, "unfinished"}} {
		if x.n > 0 {
			fmt.Fprintf(w, ", %d %s", x.n, x.what)
		}
	}
	fmt.Fprint(w, "\n\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "ms\tmean\tp50\tp90\tp99\tmax\tcount\t")
	for _, x := range []struct {
		name string
		s    Spread
	}{{"to first token", r.TTFT}, {"between pieces", r.ITL}, {"per token", r.PerToken}, {"to the end", r.Latency}, {"sent after due", r.Lag}} {
		fmt.Fprintf(t, "%s\t", x.name)
		for _, v := range []float64{x.s.Mean, x.s.P50, x.s.P90, x.s.P99, x.s.Max} {
			if x.s.Count == 0 {
				fmt.Fprint(t, "-\t")
				continue
			}
			fmt.Fprintf(t, "%s\t", figure(1e3*v))
		}
		fmt.Fprintf(t, "%d\t\n", x.s.Count)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	counted := ""
	if !r.Counted {
		counted = " (pieces)" // the server gave no usage
	}
	fmt.Fprintf(w, "\nper second: %s requests, %s prompt tokens, %s tokens written%s\n", figure(r.RequestRate), figure(r.PromptRate), figure(r.TokenRate), counted)
	fmt.Fprintf(w, "prompt tokens: %d, of which %d cached (%.1f %%); written: %d\n", r.PromptTokens, r.CachedTokens, 100*r.CachedShare, r.Tokens)
	if r.SLO != "" {
		fmt.Fprintf(w, "goodput under %s: %s requests a second, %d of %d (%.1f %%)\n", r.SLO, figure(r.Goodput), r.Good, r.OK+r.Failed, 100*r.GoodRate)
	}
	for _, kind := range slices.SortedFunc(maps.Keys(r.Errors), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.Errors[b], r.Errors[a]), cmp.Compare(a, b))
	}) {
		fmt.Fprintf(w, "%d x %s: %s\n", r.Errors[kind], kind, r.Examples[kind])
	}
	return nil
}

// figure writes a number with four digits, or all that are before the point.
func figure(x float64) string {
	digits := 3
	for n := 10.; n <= math.Abs(x) && digits > 0; n *= 10 {
		digits--
	}
	return strconv.FormatFloat(x, 'f', digits, 64)
}
