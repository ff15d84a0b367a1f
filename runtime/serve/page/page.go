// Package page holds the page at / of the server: a conversation with the model and the server's counters. It is plain
// HTML, CSS and JavaScript without a build step, part of the program, and loads nothing from elsewhere.
package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"fmt"
	"net/http"
	"time"
)

//go:embed index.html app.js style.css icon.svg
var files embed.FS

// policy lets the page load its own files and talk to its own server, and nothing else. Trusted types make the browser
// refuse text where it would become markup.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Handlers are the page's files by path.
func Handlers() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"/":               file("index.html", "text/html; charset=utf-8"),
		"/page/app.js":    file("app.js", "text/javascript; charset=utf-8"),
		"/page/style.css": file("style.css", "text/css; charset=utf-8"),
		"/page/icon.svg":  file("icon.svg", "image/svg+xml"),
	}
}

func file(name, kind string) http.HandlerFunc {
	body, err := files.ReadFile(name)
	if err != nil {
		panic(err) // the compiler has put it there
	}
	tag := fmt.Sprintf(`"%x"`, sha256.Sum256(body))
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", kind)
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache") // ask whether it has changed
		h.Set("Etag", tag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	}
}
