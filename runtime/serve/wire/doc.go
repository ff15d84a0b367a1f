// Package wire holds what the dialects of the HTTP server share: a reader of request objects that names the field that is
// wrong, errors that each dialect writes in its own shape, and event streams.
//
//	Call -> Object(body) -> Fields -> ... -> Stream, or JSON, or *Error
package wire
