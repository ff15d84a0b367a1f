package page_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

var shots = flag.String("shots", "", "write pictures of the page to this `DIRECTORY`")

// patience is how long anything may take; a test fails after it, and none waits for it otherwise.
const patience = 30 * time.Second

// chromium is the browser's program; a test without one is skipped.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "headless-shell"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no Chromium: apt-get install chromium, or name one in the variable CHROMIUM")
	return ""
}

// program builds cedrun, which the page is a part of.
func program(t *testing.T) string {
	t.Helper()
	for _, dir := range []string{"../..", "../../../cmd"} { // go test repeats a test when a file that it asked for has changed
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && filepath.Ext(path) == ".go" {
				_, err = os.Stat(path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "cedrun")
	if out, err := exec.Command("go", "build", "-o", path, "cedrun/cmd/cedrun").CombinedOutput(); err != nil {
		t.Fatalf("build cedrun (make lib first): %v\n%s", err, out)
	}
	return path
}

// serving is a running cedrun serve with the demo model.
type serving struct {
	url  string
	stop func() // as Ctrl-C does
}

func start(t *testing.T, program string, env []string, args ...string) *serving {
	t.Helper()
	cmd := exec.Command(program, append([]string{"serve", "--port", "0", "--threads", "1", "--log-level", "warn", "--drain-time", "1s"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	t.Cleanup(stop)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal("cedrun serve gave no address")
	}
	return &serving{strings.TrimSpace(line), stop}
}

// metric is a value of /metrics, 0 if it is not there.
func (s *serving) metric(t *testing.T, name string) (v float64) {
	t.Helper()
	r, err := http.Get(s.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			_, _ = fmt.Sscan(value, &v)
		}
	}
	return v
}

// browser starts one for all tests.
func browser(t *testing.T) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium(t)), chromedp.WindowSize(1200, 860))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // it refuses to run as root with one
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start Chromium: %v", err)
	}
	return ctx
}

// tab is a page in a browser.
type tab struct {
	*testing.T
	ctx    context.Context
	server *serving

	mu     sync.Mutex
	urls   []string // asked for
	faults []string // exceptions and refusals that the browser reports
}

// open opens the page of a server in a tab of its own. The tab must report no fault but those that contain one of the
// expected words.
func open(t *testing.T, browser context.Context, s *serving, expected ...string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	b := &tab{T: t, ctx: ctx, server: s}
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		t.Fatal(err)
	}
	b.ctx, cancel = context.WithTimeout(ctx, 3*patience)
	t.Cleanup(cancel)
	t.Cleanup(func() {
		for _, f := range b.seen(&b.faults) {
			known := false
			for _, e := range expected {
				known = known || strings.Contains(f, e)
			}
			if !known {
				t.Errorf("the browser reports: %s", f)
			}
		}
	})
	b.run(send(network.Enable, network.EnableParams{}), send(log.Enable, cdp.Empty{}), chromedp.Navigate(s.url+"/"))
	return b
}

func (b *tab) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.urls = append(b.urls, e.Request.URL)
	case *log.EventEntryAdded:
		b.faults = append(b.faults, e.Entry.Text+" "+e.Entry.URL)
	case *runtime.EventExceptionThrown:
		b.faults = append(b.faults, e.ExceptionDetails.Text)
	}
}

// seen are the events of a kind so far; more may come at any time.
func (b *tab) seen(kind *[]string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(*kind)
}

func (b *tab) run(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.Fatal(err)
	}
}

// send is a command of the browser's protocol.
func send[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

// eval is the value of an expression; strings among args are quoted.
func eval[T any](b *tab, expression string, args ...any) T {
	b.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](script(b, expression, args)))
	if err != nil {
		b.Fatalf("%v in %s", err, expression)
	}
	return v
}

func script(t testing.TB, expression string, args []any) string {
	t.Helper()
	quoted := slices.Clone(args)
	for i, a := range args {
		if text, ok := a.(string); ok {
			data, err := json.Marshal(text)
			if err != nil {
				t.Fatal(err)
			}
			quoted[i] = string(data)
		}
	}
	return fmt.Sprintf(expression, quoted...)
}

// js runs a script.
func (b *tab) js(statements string, args ...any) {
	b.Helper()
	eval[chromedp.Void](b, statements, args...)
}

func (b *tab) click(selector string) {
	b.Helper()
	b.run(chromedp.Click(chromedp.CSS(selector)))
}

// until waits for an expression to become true.
func (b *tab) until(expression string, args ...any) {
	b.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if eval[bool](b, "Boolean("+expression+")", args...) {
			return
		}
	}
	b.shot("failed")
	b.Fatalf("still not so: %s\nthe page says: %s", script(b, expression, args), eval[string](b, "document.body.innerText"))
}

func (b *tab) text(selector string) string {
	b.Helper()
	return eval[string](b, "document.querySelector(%s)?.textContent ?? ''", selector)
}

// set fills a field in, as a user does.
func (b *tab) set(id, value string) {
	b.Helper()
	b.js("document.getElementById(%s).closest('details')?.setAttribute('open', '')", id)
	b.js("{ const f = document.getElementById(%[1]s); f.value = %[2]s; for (const e of ['input', 'change']) f.dispatchEvent(new Event(e, { bubbles: true })); }", id, value)
}

// keys presses keys one after the other, wherever the focus is.
func (b *tab) keys(text string, modifiers ...chromedp.Modifier) {
	b.Helper()
	for part := range strings.SplitAfterSeq(text, kb.Enter) {
		word, enter := strings.CutSuffix(part, kb.Enter)
		b.run(chromedp.KeyEvent(word, chromedp.KeyModifiers(modifiers...)))
		if enter {
			b.enter(modifiers)
		}
	}
}

// enter presses Enter as a keyboard does: key and line break are one event, so that who prevents one prevents both.
func (b *tab) enter(modifiers []chromedp.Modifier) {
	b.Helper()
	key := input.DispatchKeyEventParams{
		Type: input.DispatchKeyEventTypeKeyDown, Key: "Enter", Code: "Enter", Text: kb.Enter, UnmodifiedText: kb.Enter,
		NativeVirtualKeyCode: 13, WindowsVirtualKeyCode: 13,
	}
	chromedp.KeyModifiers(modifiers...)(&key)
	b.run(send(input.DispatchKeyEvent, key))
	key.Type, key.Text, key.UnmodifiedText = input.DispatchKeyEventTypeKeyUp, "", ""
	b.run(send(input.DispatchKeyEvent, key))
}

// ask sends a message and waits for the end of the answer, which it returns.
func (b *tab) ask(text string) string {
	b.Helper()
	turns := b.answers()
	b.js("document.getElementById('prompt').focus()")
	b.keys(text + "\r")
	b.until("document.querySelectorAll('.assistant').length === %d && !document.querySelector('.writing')", turns+1)
	return b.text("#turns > :last-child > .text")
}

func (b *tab) answers() int {
	b.Helper()
	return eval[int](b, "document.querySelectorAll('.assistant').length")
}

// size makes the window another one.
func (b *tab) size(width, height int64, scheme string) {
	b.Helper()
	b.run(chromedp.EmulateViewport(width, height), send(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	}))
}

// shot writes a picture if pictures are asked for.
func (b *tab) shot(name string) {
	if *shots == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err = errors.Join(err, os.WriteFile(filepath.Join(*shots, name+".png"), png, 0o644)); err != nil {
		b.Logf("picture %s: %v", name, err)
	}
}
