package wire

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Error is a refusal or a failure as a client is told of it.
type Error struct {
	Status     int
	Code       string // what programs test for; may be empty
	Param      string // the request field at fault, if one is
	Message    string
	RetryAfter time.Duration // when to try again; 0 = the client need not
}

func (e *Error) Error() string { return e.Message }

// Invalid is a 400 about a field.
func Invalid(param, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Param: param, Message: fmt.Sprintf(format, args...)}
}

// Unsupported is a 400 about a field that is well-formed but asks for what this build lacks.
func Unsupported(param, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Code: "unsupported_parameter", Param: param, Message: fmt.Sprintf(format, args...)}
}

// NoModel is a 404 for a model that is not served here.
func NoModel(name, served string) *Error {
	return &Error{
		Status: http.StatusNotFound, Code: "model_not_found", Param: "model",
		Message: fmt.Sprintf("the model %q is not served here; use %q", Clip(name), served),
	}
}

// AsError is err as a client may see it: whatever is no Error is internal, and its text stays in the log.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Status: http.StatusInternalServerError, Code: "internal_error", Message: "the server failed; its log says why"}
}

// Head sets the headers that go with an error.
func (e *Error) Head(h http.Header) {
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
}

// Clip shortens what a client sent for a message: one line of valid text.
func Clip(s string) string {
	const most = 80
	runes := []rune(strings.Join(strings.Fields(s), " "))
	if len(runes) <= most {
		return string(runes)
	}
	return string(runes[:most]) + "…"
}
