package page_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// The page in a browser, against cedrun serve with the demo model. Nothing is mocked.
func TestInABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser")
	}
	b := browser(t)
	bin := program(t)
	s := start(t, bin, nil, "--context", "4096", "--max-batch", "2")
	for _, x := range []struct {
		name string
		test func(*testing.T, context.Context, *serving)
	}{
		{"it looks well", pictured},
		{"an answer streams in", streams},
		{"stop ends the request on the server", stops},
		{"a reload keeps conversation and settings", reloads},
		{"another answer replaces the last one", regenerates},
		{"a keyboard is enough", keyboard},
		{"reasoning is folded", reasons},
		{"calls of tools are shown and get results", calls},
		{"text of models and users never becomes markup", markup},
		{"every control has a name", names},
		{"a narrow screen needs no scrolling sideways", narrow},
		{"text has contrast in light and dark", contrast},
		{"counters move", counters},
		{"a refusal is shown and can be tried again", refusals},
	} {
		t.Run(x.name, func(t *testing.T) { x.test(t, b, s) })
	}
	t.Run("a key is asked for and kept in the tab", func(t *testing.T) { keyed(t, b, bin) })
}

func streams(t *testing.T, browser context.Context, s *serving) {
	b := open(t, browser, s)
	b.until("document.getElementById('state').textContent === 'ready' && document.getElementById('model').textContent === 'cedrun-demo'")
	b.set("limit", "300")
	b.set("temperature", "0")
	b.js(`{
		window.lengths = new Set();
		window.spoken = 0;
		new MutationObserver(() => lengths.add(document.querySelector('.assistant > .text')?.textContent.length ?? 0))
			.observe(document.getElementById('turns'), { subtree: true, childList: true, characterData: true });
		new MutationObserver((l) => spoken += l.length).observe(document.getElementById('spoken'), { childList: true });
	}`)
	text := b.ask("Speak of Moses.")
	if n := eval[int](b, "lengths.size"); n < 4 {
		t.Errorf("the answer came in %d pieces", n)
	}
	paragraphs := eval[int](b, "document.querySelector('.assistant > .text').children.length")
	if n := eval[int](b, "spoken"); n == 0 || n > paragraphs+2 {
		t.Errorf("an answer of %d paragraphs was read out in %d pieces", paragraphs, n)
	}
	if said := strings.Join(strings.Fields(b.text("#spoken")), ""); said != strings.Join(strings.Fields(text), "") {
		t.Errorf("read out: %q, shown: %q", said, text)
	}
	if note := b.text(".foot .note"); !strings.Contains(note, "300 out at ") || !strings.Contains(note, "limit reached") {
		t.Errorf("note %q", note)
	}
	for _, u := range b.seen(&b.urls) {
		if !strings.HasPrefix(u, s.url+"/") {
			t.Errorf("the page asked for %s", u)
		}
	}
	b.shot("answer")
}

func stops(t *testing.T, browser context.Context, s *serving) {
	b := open(t, browser, s)
	b.set("temperature", "0") // which goes round in circles up to the end of the context
	for _, way := range []struct {
		name string
		stop func()
	}{
		{"button", func() { b.click("#stop") }},
		{"Esc", func() { b.keys(kb.Escape) }},
	} {
		was := s.metric(t, `cedrun_generations_total{finish="cancelled"}`)
		b.click("#fresh")
		b.keys("Tell of all the kings.\r")
		b.until("document.querySelector('.writing > .text')?.textContent.length > 20")
		way.stop()
		b.until("!document.querySelector('.writing')")
		if note := b.text("#turns > :last-child .note"); note != "Stopped." {
			t.Errorf("%s: note %q", way.name, note)
		}
		if text := b.text("#turns > :last-child > .text"); len(text) < 20 {
			t.Errorf("%s: what was written is gone: %q", way.name, text)
		}
		if f := eval[string](b, "document.activeElement.id"); f != "prompt" {
			t.Errorf("%s: the focus is on %q", way.name, f)
		}
		for end := time.Now().Add(patience); s.metric(t, `cedrun_generations_total{finish="cancelled"}`) == was; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: the server goes on", way.name)
			}
		}
	}
}

func reloads(t *testing.T, browser context.Context, s *serving) {
	b := open(t, browser, s)
	b.set("limit", "20")
	b.set("system", "You are terse.")
	b.set("temperature", "0")
	b.ask("In the beginning")
	b.ask("And then?")
	before := b.text("#turns")
	b.run(chromedp.Reload())
	b.until("document.querySelectorAll('.turn').length === 4")
	if after := b.text("#turns"); after != before {
		t.Errorf("before: %q\nafter: %q", before, after)
	}
	for id, want := range map[string]string{"limit": "20", "system": "You are terse.", "temperature": "0"} {
		if got := eval[string](b, "document.getElementById(%s).value", id); got != want {
			t.Errorf("%s is %q", id, got)
		}
	}
	b.ask("And the third day?")
	if note := b.text("#turns > :last-child .note"); strings.Contains(note, " 0 cached") {
		t.Errorf("the conversation was computed anew: %q", note)
	}

	// In the middle of an answer: what was written stays.
	b.set("limit", "")
	b.keys("Tell of all the kings.\r")
	b.until("document.querySelector('.writing > .text')?.textContent.length > 20")
	b.run(chromedp.Reload())
	b.until("document.querySelectorAll('.turn').length === 8 && document.querySelector('.turn:last-child > .text').textContent.length > 20 && document.querySelector('.turn:last-child .note').textContent === 'Stopped.' && !document.querySelector('.writing')")

	b.click("#fresh")
	b.until("document.querySelectorAll('.turn').length === 0 && document.activeElement.id === 'prompt'")
}

func regenerates(t *testing.T, browser context.Context, s *serving) {
	b := open(t, browser, s)
	b.set("limit", "30")
	b.set("temperature", "2")
	first := b.ask("Speak of Aaron.")
	b.click(".again")
	b.until("document.querySelectorAll('.turn').length === 2 && !document.querySelector('.writing') && document.querySelector('.assistant > .text').textContent !== %s", first)
	if user := b.text(".user .text"); user != "Speak of Aaron." {
		t.Errorf("the message is %q", user)
	}
}

func keyboard(t *testing.T, browser context.Context, s *serving) {
	b := open(t, browser, s)
	b.set("limit", "20")
	b.run(chromedp.Reload()) // the focus is where a new page puts it
	b.until("document.activeElement.id === 'prompt'")
	b.js("document.getElementById('settings').open = true")
	b.keys("two")
	b.keys("\r", kb.ModifierShift)
	b.keys("lines")
	if v := eval[string](b, "document.getElementById('prompt').value"); v != "two\nlines" {
		t.Errorf("Shift+Enter gave %q", v)
	}
	b.keys("\r")
	if v := eval[string](b, "document.getElementById('prompt').value"); v != "" {
		t.Errorf("after sending, the field holds %q", v)
	}
	b.until("document.querySelector('.assistant') && !document.querySelector('.writing')")
	if v := b.text(".user .text"); v != "two\nlines" {
		t.Errorf("sent %q", v)
	}
	seen := map[string]bool{}
	for range 30 {
		b.keys("\t")
		at := eval[struct {
			Name            string
			Visible, Marked bool
		}](b, `(() => {
			const e = document.activeElement;
			const r = e.getBoundingClientRect();
			return { Name: e.id || e.className || e.closest('[id]')?.id + ' ' + e.tagName, Visible: r.width > 0 && r.height > 0,
				Marked: e === document.body || e.matches(':focus-visible') && getComputedStyle(e).outlineStyle !== 'none' };
		})()`)
		if !at.Visible || !at.Marked {
			t.Errorf("the focus on %s is not seen: %+v", at.Name, at)
		}
		seen[at.Name] = true
	}
	for _, want := range []string{"prompt", "send", "fresh", "settings SUMMARY", "counters SUMMARY", "chat", "again", "system", "temperature", "limit", "effort", "tools", "choice"} {
		if !seen[want] {
			t.Errorf("the tabulator never came to %s: %v", want, seen)
		}
	}
	for range 30 {
		if eval[bool](b, "document.activeElement.className === 'again'") {
			break
		}
		b.keys("\t")
	}
	old := b.text(".assistant > .text")
	b.keys(" ")
	b.until("document.querySelectorAll('.turn').length === 2 && !document.querySelector('.writing') && document.querySelector('.assistant > .text').textContent !== %s", old)
}

func reasons(t *testing.T, browser context.Context, s *serving) {
	b := open(t, browser, s)
	b.set("limit", "60")
	b.set("effort", "high")
	b.ask("Why?")
	b.until("!document.querySelector('.reasoning').hidden && !document.querySelector('.reasoning').open && document.querySelector('.reasoning .text').textContent.length > 10")
	if sum := b.text(".reasoning summary"); sum != "Reasoning" {
		t.Errorf("summary %q", sum)
	}
	b.click(".reasoning summary")
	b.until("document.querySelector('.reasoning .text').offsetHeight > 0")
	b.set("effort", "none")
	b.ask("Why not?")
	b.until("document.querySelector('.turn:last-child .reasoning').hidden && document.querySelector('.turn:last-child > .text').textContent")
}

const weather = `[{"name": "get_weather", "strict": true, "parameters": {"type": "object", "properties": {"city": {"enum": ["Ur"]}, "days": {"enum": [7]}}, "required": ["city", "days"], "additionalProperties": false}}]`

func calls(t *testing.T, browser context.Context, s *serving) {
	b := open(t, browser, s)
	b.set("tools", "[{")
	b.until("document.getElementById('tools').getAttribute('aria-invalid') === 'true' && document.getElementById('tools-note').textContent.startsWith('This is no JSON')")
	b.keys("Hello\r")
	if n := b.answers(); n != 0 {
		t.Error("the message was sent with tools that are no JSON")
	}
	b.set("tools", weather)
	b.set("choice", "required")
	b.set("limit", "200")
	b.set("temperature", "0")
	b.js("document.getElementById('prompt').value = ''")
	b.ask("What is the weather?")
	n := eval[int](b, "document.querySelectorAll('.call').length")
	if call := b.text(".call"); n == 0 || !strings.Contains(call, "get_weather") || !strings.Contains(call, `"city": "Ur"`) || !strings.Contains(call, `"days": 7`) {
		t.Fatalf("%d calls: %s", n, call)
	}
	b.shot("call")
	b.set("choice", "none")
	for range n { // one result for each call
		b.until("document.getElementById('prompt-label').textContent === 'Result of get_weather'")
		b.keys("dry\r")
	}
	b.until("document.querySelectorAll('.assistant').length === 2 && !document.querySelector('.writing') && document.getElementById('prompt-label').textContent === 'Message'")
	if tool := b.text(".tool"); tool != "Result of get_weatherdry" {
		t.Errorf("result %q", tool)
	}
	if p := b.text(".turn:last-child .problem"); p != "" {
		t.Error(p)
	}
}

// hostile does harm where it becomes markup.
const hostile = `<img src=x onerror="document.title='harm'"><script>document.title='harm'</script><b onmouseover=alert(1)>x</b>`

func markup(t *testing.T, browser context.Context, s *serving) {
	b := open(t, browser, s, "TrustedHTML")
	// The model writes it: the only value that its tool allows.
	b.set("tools", strings.Replace(weather, `"Ur"`, quote(hostile), 1))
	b.set("choice", "required")
	b.set("limit", "400")
	b.ask(hostile)
	if call := b.text(".call pre"); !strings.Contains(call, "<img src=x onerror=") {
		t.Errorf("the call: %s", call)
	}
	if user := b.text(".user .text"); user != hostile {
		t.Errorf("the message: %s", user)
	}
	// Every kind of text, as if it had been said before, in formatting too.
	turns := `[{"role":"user","content":H},{"role":"assistant","content":H + "\n\n**" + H + "** and ` + "`\" + H + \"`\\n```html\\n\" + H + \"\\n```" + `","reasoning":H,"calls":[{"id":"a","name":H,"arguments":H}],"finish":"tool_calls","note":H,"error":H},
		{"role":"tool","id":"a","name":H,"content":H}]`
	b.js("{ const H = %s; addEventListener('pagehide', () => sessionStorage.setItem('cedrun.turns', JSON.stringify("+turns+"))); }", hostile)
	b.run(chromedp.Reload())
	b.until("document.querySelectorAll('.turn').length === 3")
	if n := strings.Count(b.text("#turns"), "<img src=x onerror="); n < 10 {
		t.Errorf("the text shows %d times: %s", n, b.text("#turns"))
	}
	if n := eval[int](b, "document.querySelectorAll('img, script:not([src]), [onerror], [onmouseover], iframe').length"); n > 0 {
		t.Errorf("%d elements came from text", n)
	}
	if title := eval[string](b, "document.title"); title != "cedrun-demo – cedrun" {
		b.until("document.title === 'cedrun-demo – cedrun'")
	}
	// If the script ever tried, the browser would refuse.
	if !eval[bool](b, "(() => { try { document.createElement('div').innerHTML = '<i>x</i>'; return false; } catch { return true; } })()") {
		t.Error("markup can be made from text")
	}
}

func quote(s string) string { return `"` + strings.ReplaceAll(s, `"`, `\"`) + `"` }
