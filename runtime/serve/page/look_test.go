package page_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"
)

func names(t *testing.T, browser context.Context, s *serving) {
	b := open(t, browser, s)
	b.set("limit", "20")
	b.set("effort", "low")
	b.ask("Why?")
	b.set("effort", "none")
	b.ask("Speak of Moses.")
	b.js("document.querySelectorAll('details').forEach((d) => d.open = true)")
	tree, err := chromedp.Run(b.ctx, func(ctx context.Context, t *chromedp.Target) (accessibility.GetFullAXTreeResult, error) {
		return cdp.Call(ctx, t, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	})
	if err != nil {
		t.Fatal(err)
	}
	need := []string{"button", "textbox", "combobox", "spinbutton", "region", "complementary", "DisclosureTriangle", "meter", "heading", "RootWebArea"}
	landmarks := map[string]int{"banner": 0, "main": 0, "complementary": 0, "region": 0}
	found := map[string]bool{}
	for _, n := range tree.Nodes {
		if n.Ignored || n.Role == nil {
			continue
		}
		role, name := strings.Trim(string(n.Role.Value), `"`), ""
		if n.Name != nil {
			name = strings.Trim(string(n.Name.Value), `"`)
		}
		if _, ok := landmarks[role]; ok {
			landmarks[role]++
		}
		if slices.Contains(need, role) {
			found[name] = true
			if strings.TrimSpace(name) == "" {
				t.Errorf("a %s has no name", role)
			}
		}
	}
	for _, want := range []string{"New chat", "System prompt", "Temperature", "Max tokens", "Reasoning effort", "Tools", "Tool choice", "Conversation", "Message", "Send", "Copy", "Regenerate", "Reasoning", "KV cache in use", "You", "Answer"} {
		if !found[want] {
			t.Errorf("nothing is called %q: %v", want, found)
		}
	}
	for role, n := range landmarks {
		if n == 0 {
			t.Errorf("there is no %s", role)
		}
	}
	if lang := eval[string](b, "document.documentElement.lang"); lang != "en" {
		t.Errorf("language %q", lang)
	}
}

func narrow(t *testing.T, browser context.Context, s *serving) {
	b := open(t, browser, s)
	b.set("limit", "60")
	b.set("effort", "none")
	b.ask("Speak " + strings.Repeat("of_Moses_", 20))
	for _, width := range []int64{360, 320, 700, 900} {
		b.size(width, 740, "light")
		for _, open := range []bool{false, true} {
			wide := eval[[]string](b, `(() => {
				document.querySelectorAll('aside details').forEach((d) => d.open = %v);
				document.getElementById('chat').scrollTop = 1e6;
				const over = [...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > innerWidth + 0.5 && !e.closest('.unseen, pre'));
				if (document.documentElement.scrollWidth > innerWidth || document.getElementById('chat').scrollWidth > document.getElementById('chat').clientWidth) over.push(document.body);
				return over.map((e) => e.tagName + '#' + e.id + '.' + e.className);
			})()`, open)
			if len(wide) > 0 {
				t.Errorf("%d px, settings open %v: too wide: %v", width, open, wide)
			}
			if width == 360 {
				b.shot(map[bool]string{false: "narrow", true: "narrow-settings"}[open])
			}
		}
		if !eval[bool](b, "document.getElementById('prompt').getBoundingClientRect().bottom <= innerHeight") {
			t.Errorf("%d px: the message is below the window", width)
		}
	}
}

// contrast measures every text against what is behind it; 4.5 is what WCAG AA asks for.
func contrast(t *testing.T, browser context.Context, s *serving) {
	b := open(t, browser, s)
	b.set("limit", "80")
	b.ask("Speak of Moses.")
	grounds := map[string]bool{}
	for _, scheme := range []string{"light", "dark"} {
		b.size(1200, 860, scheme)
		b.js("document.querySelectorAll('details').forEach((d) => d.open = true)")
		faint := eval[[]string](b, `(() => {
			const rgb = (c) => c.match(/[\d.]+/g).map(Number);
			const lum = (c) => rgb(c).slice(0, 3).map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
			const behind = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (rgb(c)[3] !== 0) return c; } return 'rgb(255,255,255)'; };
			const out = [];
			for (const e of document.querySelectorAll('body *')) {
				const texts = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || e.matches('input, textarea, select');
				if (!texts || !e.offsetHeight) continue;
				const [a, b] = [lum(getComputedStyle(e).color), lum(behind(e))].sort((x, y) => y - x);
				const ratio = (a + 0.05) / (b + 0.05);
				if (ratio < 4.5) out.push(e.tagName + '#' + e.id + '.' + e.className + ' ' + ratio.toFixed(2));
			}
			return out;
		})()`)
		if len(faint) > 0 {
			t.Errorf("%s: %v", scheme, faint)
		}
		grounds[eval[string](b, "getComputedStyle(document.body).backgroundColor")] = true
		b.shot("wide-" + scheme)
	}
	if len(grounds) != 2 {
		t.Errorf("light and dark look alike: %v", grounds)
	}
}

func counters(t *testing.T, browser context.Context, s *serving) {
	b := open(t, browser, s)
	b.set("limit", "30")
	b.until("document.getElementById('hits').textContent !== '–'")
	before := b.text("#hits")
	b.ask("In the beginning")
	b.ask("And then?")
	b.until("document.getElementById('hits').textContent !== %s", before)
	b.until("document.getElementById('prefill').textContent.endsWith(' tok/s') && document.getElementById('decode').textContent.endsWith(' tok/s')")
	b.until("document.getElementById('kv-bar').value > 0 && document.getElementById('kv').textContent.includes(' of ')")
	b.until("/^KV pages, backend[1-9]/.test(document.getElementById('tiers').textContent)")
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	for range 3 { // one more than run at a time
		q, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/completions", strings.NewReader(`{"prompt": "And", "max_tokens": 4000, "ignore_eos": true, "stream": true}`))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", "application/json")
		r, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
	}
	b.until("document.getElementById('running').textContent === '2' && document.getElementById('waiting').textContent === '1'")
	cancel()
	b.until("document.getElementById('running').textContent === '0' && document.getElementById('waiting').textContent === '0'")
}

func refusals(t *testing.T, browser context.Context, s *serving) {
	b := open(t, browser, s, "400 (Bad Request)")
	b.set("limit", "20")
	b.set("system", strings.Repeat("a b c d ", 4000))
	b.ask("Hello")
	if p := b.text(".problem"); !strings.Contains(p, "this server's context holds 4096") {
		t.Errorf("the refusal: %q", p)
	}
	if again := b.text(".again"); again != "Try again" {
		t.Errorf("the button: %q", again)
	}
	b.shot("refusal")
	b.set("system", "")
	b.click(".again")
	b.until("document.querySelectorAll('.turn').length === 2 && document.querySelector('.problem').hidden && document.querySelector('.assistant > .text').textContent && !document.querySelector('.writing')")
	if n := eval[int](b, "document.querySelectorAll('[hidden].problem').length"); n != 1 {
		t.Errorf("%d answers", n)
	}
	b.set("temperature", "9")
	b.keys("Hello\r")
	b.until("document.activeElement.id === 'temperature'")
	if n := eval[int](b, "document.querySelectorAll('.turn').length"); n != 2 {
		t.Error("a message was sent with settings that are none")
	}
}

func keyed(t *testing.T, browser context.Context, program string) {
	s := start(t, program, []string{"CEDRUN_API_KEY=open-sesame"}, "--context", "512", "--served-name", hostile)
	b := open(t, browser, s, "401 (Unauthorized)", "ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE")
	b.until("document.activeElement.id === 'key' && document.getElementById('state').textContent === 'needs a key'")
	b.shot("key")
	b.set("limit", "20")
	b.ask("Hello")
	if p := b.text(".problem"); !strings.Contains(p, "no valid API key") {
		t.Errorf("without a key: %q", p)
	}
	b.until("document.activeElement.id === 'key'")
	b.keys("open-sesame\t")
	b.until("document.getElementById('state').textContent === 'ready'")
	b.until("document.getElementById('model').textContent === %s && !document.querySelector('header img')", hostile)
	b.click(".again")
	b.until("document.querySelector('.assistant > .text').textContent && !document.querySelector('.writing')")
	b.run(chromedp.Reload())
	b.until("document.getElementById('state').textContent === 'ready' && document.getElementById('key').value === 'open-sesame'")
	if kept := eval[int](b, "localStorage.length + document.cookie.length"); kept != 0 {
		t.Error("something outlives the tab")
	}
	for _, u := range b.seen(&b.urls) {
		if strings.Contains(u, "sesame") {
			t.Errorf("the key is in %s", u)
		}
	}

	s.stop()
	b.until("document.getElementById('state').textContent === 'offline'")
	b.ask("Still there?")
	if p := b.text("#turns > :last-child .problem"); !strings.Contains(p, "cannot be reached") {
		t.Errorf("without a server: %q", p)
	}
}

// pictured takes the README's picture.
func pictured(t *testing.T, browser context.Context, s *serving) {
	if *shots == "" {
		t.Skip("no pictures are asked for")
	}
	b := open(t, browser, s)
	b.set("limit", "140")
	b.set("temperature", "0.7")
	b.size(960, 600, "light")
	b.ask("And Moses said unto the people,")
	b.ask("And it came to pass, that")
	b.js("document.getElementById('settings').open = false")
	b.until("document.getElementById('decode').textContent !== '–' && document.getElementById('hits').textContent.endsWith(' of ' + [...document.querySelectorAll('.foot .note')].reduce((n, e) => n + parseInt(e.textContent), 0))")
	b.shot("page")
}
