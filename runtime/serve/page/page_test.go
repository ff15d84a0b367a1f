package page_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"cedrun/runtime/serve/page"
)

func get(path, tag string) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil)
	if tag != "" {
		r.Header.Set("If-None-Match", tag)
	}
	page.Handlers()[path](w, r)
	return w
}

func TestThePageIsSmallAndLoadsNothingFromElsewhere(t *testing.T) {
	total := 0
	for path := range page.Handlers() {
		w := get(path, "")
		body := w.Body.String()
		total += len(body)
		if w.Code != http.StatusOK || len(body) == 0 {
			t.Errorf("%s: status %d, %d bytes", path, w.Code, len(body))
		}
		policy := w.Header().Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") {
			t.Errorf("%s: policy %q", path, policy)
		}
		if found := regexp.MustCompile(`https?://[^"' )]+|@import|style=|\son\w+=`).FindAllString(body, -1); len(found) > 0 && path != "/page/icon.svg" {
			t.Errorf("%s holds %q", path, found)
		}
		if found := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|localStorage|document\.cookie`).FindAllString(body, -1); len(found) > 0 {
			t.Errorf("%s uses %q", path, found)
		}
		again := get(path, w.Header().Get("Etag"))
		if again.Code != http.StatusNotModified || again.Body.Len() > 0 {
			t.Errorf("%s, unchanged: status %d, %d bytes", path, again.Code, again.Body.Len())
		}
	}
	if total > 40<<10 {
		t.Errorf("the page has %d bytes", total)
	}
}

func TestTheScriptFindsWhatItNames(t *testing.T) {
	html := get("/", "").Body.String()
	script, err := os.ReadFile("app.js")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`\$\("([\w-]+)"\)`).FindAllStringSubmatch(string(script), -1) {
		if !strings.Contains(html, `id="`+m[1]+`"`) {
			t.Errorf("app.js names #%s, which index.html lacks", m[1])
		}
	}
	for _, m := range regexp.MustCompile(`(?:for|aria-describedby)="([\w-]+)"`).FindAllStringSubmatch(html, -1) {
		if !strings.Contains(html, `id="`+m[1]+`"`) {
			t.Errorf("index.html refers to #%s, which it lacks", m[1])
		}
	}
}
