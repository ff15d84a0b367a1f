package serve_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"cedrun/runtime/serve"
)

// A page asks for a key by itself, so the server gives it to everybody, also while the model loads. It holds nothing that
// is not in the program.
func TestThePageIsOpen(t *testing.T) {
	s := start(t, setup{options: serve.Options{Keys: []string{"open-sesame"}, Local: true}})
	for path, kind := range map[string]string{"/": "text/html", "/page/app.js": "text/javascript", "/page/style.css": "text/css", "/page/icon.svg": "image/svg+xml"} {
		r := s.send(context.Background(), path, nil)
		data, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || r.StatusCode != http.StatusOK || !strings.HasPrefix(r.Header.Get("Content-Type"), kind) || len(data) == 0 {
			t.Errorf("%s: status %d, %s, %d bytes, %v", path, r.StatusCode, r.Header.Get("Content-Type"), len(data), err)
		}
		for header, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'", "Referrer-Policy": "no-referrer"} {
			if got := r.Header.Get(header); !strings.HasPrefix(got, want) {
				t.Errorf("%s: %s is %q", path, header, got)
			}
		}
	}
	if code, _ := s.call("/", "{}"); code != http.StatusMethodNotAllowed {
		t.Errorf("a POST of the page: %d", code)
	}
	if code, _ := s.call("/page/", nil); code != http.StatusNotFound {
		t.Errorf("/page/: %d", code)
	}
}
