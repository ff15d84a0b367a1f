package profile

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
)

// Measures of the plot in pixels.
const (
	width, height                    = 1180, 640
	plotLeft, plotTop                = 76, 62
	plotRight, plotBottom            = 660, 580
	legendLeft, legendRight, legendY = 690, 1156, 74
	rowHeight                        = 19
)

// colours of phases.
var colours = map[string]string{Prefill: "#1f6fb4", Decode: "#c8501e", Mixed: "#5f7f2f"}

type drawing struct {
	report *Report
	points []point
	x, y   scale
	buf    bytes.Buffer
	taken  []box
}

func newDrawing(r *Report) *drawing {
	d := &drawing{report: r, points: r.points()}
	l := r.Limits
	top := max(l.BF16, l.F32)
	xs, ys := []float64{top / l.Read, 4 * top / l.Read}, []float64{top, min(l.BF16, l.F32)}
	for _, p := range d.points {
		xs, ys = append(xs, p.intensity), append(ys, p.rate)
	}
	d.x, d.y = newScale(plotLeft, plotRight, xs...), newScale(plotBottom, plotTop, ys...)
	d.printf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="Helvetica, Arial, sans-serif" font-size="12" fill="#222">`, width, height, width, height)
	d.printf(`<title>Roofline of %s</title>`, escape(r.Model))
	d.printf(`<rect width="%d" height="%d" fill="#fff"/>`, width, height)
	d.text(plotLeft, 26, "start", `font-size="17" font-weight="bold"`, "Roofline: "+short(r.Model, 60))
	what := ""
	for _, p := range r.Phases {
		what += fmt.Sprintf("; %s of %d tokens, %s tok/s", p.Name, p.Tokens, rate(p.Rate))
	}
	if r.Device != "" {
		what = ", " + r.Device + what
	}
	if r.Simulated {
		what += ", " + simulated
	}
	d.text(plotLeft, 46, "start", `fill="#555"`, fmt.Sprintf("backend %s (%s), %d threads%s", r.Backend, r.ISA, r.Threads, what))
	return d
}

func (d *drawing) printf(format string, args ...any) {
	fmt.Fprintf(&d.buf, format, args...)
	d.buf.WriteByte('\n')
}

func (d *drawing) text(x, y float64, anchor, attrs, s string) {
	d.printf(`<text x="%.1f" y="%.1f" text-anchor="%s" %s>%s</text>`, x, y, anchor, attrs, escape(s))
}

func (d *drawing) line(x0, y0, x1, y1 float64, attrs string) {
	d.printf(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" %s/>`, x0, y0, x1, y1, attrs)
}

func escape(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // a buffer takes everything
	return b.String()
}

// short keeps the end of a long path.
func short(name string, most int) string {
	if len([]rune(name)) > most {
		name = ".../" + filepath.Base(name)
	}
	if r := []rune(name); len(r) > most {
		name = string(r[:most-3]) + "..."
	}
	return name
}

// grid draws the axes, with their ticks, names and units.
func (d *drawing) grid() {
	x, y := &d.x, &d.y
	for _, axis := range []struct {
		s  *scale
		up bool
	}{{x, false}, {y, true}} {
		all, major := axis.s.ticks()
		for i, list := range [][]float64{all, major} {
			attrs := `stroke="` + []string{"#eee", "#ccc"}[i] + `"`
			for _, v := range list {
				at := axis.s.at(v)
				if axis.up {
					d.line(plotLeft, at, plotRight, at, attrs)
				} else {
					d.line(at, plotTop, at, plotBottom, attrs)
				}
			}
		}
		for _, v := range major {
			name := tickName(v)
			if axis.up {
				d.text(plotLeft-8, axis.s.at(v)+4, "end", "", name)
			} else {
				d.text(axis.s.at(v), plotBottom+18, "middle", "", name)
			}
		}
	}
	d.printf(`<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#888"/>`, plotLeft, plotTop, plotRight-plotLeft, plotBottom-plotTop)
	d.text((plotLeft+plotRight)/2, plotBottom+40, "middle", "", "FLOPs per byte of weights, cache and table rows")
	d.printf(`<text transform="translate(24 %d) rotate(-90)" text-anchor="middle">GFLOP/s</text>`, (plotTop+plotBottom)/2)
}

// tickName writes a tick's value without an exponent.
func tickName(v float64) string {
	switch {
	case v >= 1e6:
		return strconv.FormatFloat(v/1e6, 'f', -1, 64) + "M"
	case v >= 1e4:
		return strconv.FormatFloat(v/1e3, 'f', -1, 64) + "k"
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// ceilings draws the bandwidth's slope and the rates' levels, each as far as it binds.
func (d *drawing) ceilings() {
	l := d.report.Limits
	levels := []struct {
		name string
		rate float64
	}{{"F32", l.F32}, {"BF16", l.BF16}}
	if l.BF16 > l.F32 {
		levels[0], levels[1] = levels[1], levels[0]
	}
	top := levels[0].rate
	x0, x1 := math.Pow(10, d.x.low), top/l.Read
	if y0 := math.Pow(10, d.y.low); x0*l.Read < y0 {
		x0 = y0 / l.Read
	}
	const stroke = `stroke="#333" stroke-width="2"`
	ax, ay, bx, by := d.x.at(x0), d.y.at(x0*l.Read), d.x.at(x1), d.y.at(top)
	d.line(ax, ay, bx, by, stroke)
	name := fmt.Sprintf("read %.3g GB/s", l.Read)
	slope := math.Hypot(bx-ax, by-ay)
	ux, uy := (bx-ax)/slope, (by-ay)/slope
	half := 3.7 * float64(len(name))
	for _, at := range []float64{0.72, 0.8, 0.6, 0.5, 0.4, 0.3, 0.2, 0.88} { // where no marker is
		mx, my := ax+at*(bx-ax)+11*uy, ay+at*(by-ay)-11*ux
		var boxes []box
		for t := -half; t <= half; t += 6 {
			boxes = append(boxes, round(mx+t*ux, my+t*uy, 7))
		}
		if at < 0.88 && slices.ContainsFunc(boxes, d.covered) {
			continue
		}
		d.printf(`<text transform="translate(%.1f %.1f) rotate(%.1f) translate(0 4)" text-anchor="middle" fill="#333">%s</text>`, mx, my, math.Atan2(uy, ux)*180/math.Pi, name)
		d.taken = append(d.taken, boxes...)
		break
	}
	for i := 0.; i <= 1; i += 1. / 64 { // no number stands on the line
		d.taken = append(d.taken, round(ax+i*(bx-ax), ay+i*(by-ay), 2))
	}
	for i, v := range levels {
		y, from := d.y.at(v.rate), d.x.at(v.rate/l.Read)
		dash, above := "", -6.
		if i > 0 {
			dash = ` stroke-dasharray="6 4"`
			if y-d.y.at(top) < 20 {
				above = 15
			}
		}
		d.line(from, y, plotRight, y, stroke+dash)
		name := fmt.Sprintf("%s %.3g GFLOP/s", v.name, v.rate)
		long := 7.4 * float64(len(name))
		right := plotRight - 6.
		for r := right; r-long > from; r -= 10 {
			if !d.covered(box{r - long, y + above - 11, r, y + above + 3}) {
				right = r
				break
			}
		}
		d.text(right, y+above, "end", `fill="#333"`, name)
		d.taken = append(d.taken, box{from, y - 2, plotRight, y + 2}, box{right - long, y + above - 11, right, y + above + 3})
	}
}

// marker draws a phase's sign around a centre.
func (d *drawing) marker(phase string, x, y, r float64) {
	attrs := fmt.Sprintf(`fill="%s" fill-opacity="0.55" stroke="%s"`, colours[phase], colours[phase])
	switch phase {
	case Prefill:
		d.printf(`<circle cx="%.1f" cy="%.1f" r="%.1f" %s/>`, x, y, r, attrs)
	case Decode:
		d.printf(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" %s/>`, x-r, y-r, 2*r, 2*r, attrs)
	default:
		d.printf(`<path d="M%.1f %.1f l%.1f %.1f l%.1f %.1f l%.1f %.1f z" %s/>`, x, y-r, r, r, -r, r, -r, -r, attrs)
	}
}

// size is a marker's radius: its area is the kernel's share.
func (p *point) size() float64 { return 4 + 12*math.Sqrt(p.share) }

// markers draws the kernels.
func (d *drawing) markers() {
	for i := range d.points {
		p := &d.points[i]
		x, y := d.x.at(p.intensity), d.y.at(p.rate)
		d.taken = append(d.taken, round(x, y, p.size()))
		d.marker(p.phase, x, y, p.size())
	}
}

// numbers writes each kernel's beside its marker, where there is room.
func (d *drawing) numbers() {
	for i := range d.points {
		p := &d.points[i]
		d.number(i+1, d.x.at(p.intensity), d.y.at(p.rate), p.size(), colours[p.phase])
	}
}

// number writes n as near to a marker as nothing else is, with a line to it from further away.
func (d *drawing) number(n int, x, y, r float64, colour string) {
	s := strconv.Itoa(n)
	half := 4 * float64(len(s))
	for far := r + 10; far < 160; far += 6 {
		for _, turn := range []float64{-0.125, 0.125, 0.375, -0.375, 0, 0.5, -0.25, 0.25} {
			cx, cy := x+far*math.Cos(2*math.Pi*turn), y+far*math.Sin(2*math.Pi*turn)
			b := box{cx - half - 1, cy - 6, cx + half + 1, cy + 6}
			if b.x0 < plotLeft || b.x1 > plotRight || b.y0 < plotTop || b.y1 > plotBottom || d.covered(b) {
				continue
			}
			d.taken = append(d.taken, b)
			if far > r+20 {
				d.line(x, y, cx-(half+2)*math.Cos(2*math.Pi*turn), cy-7*math.Sin(2*math.Pi*turn), `stroke="`+colour+`" stroke-width="0.7"`)
			}
			d.text(cx, cy+4, "middle", `font-weight="bold" fill="`+colour+`"`, s)
			return
		}
	}
	d.text(x, y+4, "middle", `font-weight="bold"`, s)
}

func (d *drawing) covered(b box) bool {
	for _, t := range d.taken {
		if t.hits(b) {
			return true
		}
	}
	return false
}

// legend names the numbers, by phase.
func (d *drawing) legend() {
	y := float64(legendY)
	const shareX, rateX, limitX = legendRight - 146., legendRight - 72., float64(legendRight)
	phase := ""
	for i, p := range d.points {
		if p.phase != phase {
			if phase != "" {
				y += 12
			}
			phase = p.phase
			d.marker(phase, legendLeft+8, y-4, 6)
			d.text(legendLeft+24, y, "start", `font-weight="bold" fill="`+colours[phase]+`"`, phase)
			const head = `fill="#555" font-size="11"`
			d.text(shareX, y, "end", head, "of time")
			d.text(rateX, y, "end", head, "GFLOP/s")
			d.text(limitX, y, "end", head, "of limit")
			y += rowHeight
		}
		d.text(legendLeft+16, y, "end", `font-weight="bold" fill="`+colours[phase]+`"`, strconv.Itoa(i+1))
		d.text(legendLeft+24, y, "start", `font-size="11.5"`, short(p.label, 38))
		d.text(shareX, y, "end", "", percent(p.share))
		d.text(rateX, y, "end", "", strconv.FormatFloat(p.rate, 'f', 1, 64))
		d.text(limitX, y, "end", "", percent(p.ofLimit))
		y += rowHeight
	}
	for i, note := range []string{
		"A marker grows with its share of its phase's time. Of limit: the larger of bytes over",
		"bandwidth and FLOPs over rate, of the time; past 100 % data stayed in caches, or",
		"products were of integers. Kernels that only move data are not drawn.",
	} {
		d.text(legendLeft, float64(height-47+15*i), "start", `fill="#555" font-size="11"`, note)
	}
}

func (d *drawing) write(w io.Writer) error {
	d.printf(`</svg>`)
	if _, err := w.Write(d.buf.Bytes()); err != nil {
		return fmt.Errorf("write plot: %w", err)
	}
	return nil
}
