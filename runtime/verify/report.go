package verify

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Report is what was found.
type Report struct {
	Model         string   `json:"model"`
	OK            bool     `json:"ok"`
	Files         []File   `json:"files"`
	Census        *Census  `json:"census,omitempty"` // nil when the shards cannot be opened
	Tokens        int      `json:"tokens,omitempty"` // of the tokenizer
	EngramClasses int      `json:"engram_classes,omitempty"`
	BytesRead     int64    `json:"bytes_read,omitempty"`    // by the deep part
	DigestSource  string   `json:"digest_source,omitempty"` // what digests were compared with
	Notes         []string `json:"notes,omitempty"`         // worth knowing, no faults
	Faults        []string `json:"faults,omitempty"`
}

// File is one file of the checkpoint.
type File struct {
	Name      string `json:"name"`
	Bytes     int64  `json:"bytes"`
	SHA256    string `json:"sha256,omitempty"`    // once it was read
	Confirmed bool   `json:"confirmed,omitempty"` // equal to the digest that it must have
}

// Census counts what is stored. Roles are empty when the tensors do not fit the config.
type Census struct {
	Shards  int     `json:"shards"`
	Tensors int     `json:"tensors"`
	Bytes   int64   `json:"bytes"`
	Roles   []Count `json:"roles,omitempty"`
	Types   []Count `json:"dtypes"`
}

// Count is a number of tensors and their bytes.
type Count struct {
	Name    string `json:"name"`
	Tensors int    `json:"tensors"`
	Bytes   int64  `json:"bytes"`
}

func (c *Count) add(bytes int64) { c.Tensors++; c.Bytes += bytes }

// Print writes the report for people; digests in the format of sha256sum.
func (r *Report) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, count, bytes string) { fmt.Fprintf(t, "%s\t%7s\t%15s\n", name, count, bytes) }
	number := func(n int) string { return digits(int64(n)) }
	fmt.Fprintln(w, r.Model)
	total := int64(0)
	for _, f := range r.Files {
		total += f.Bytes
	}
	row("", "COUNT", "BYTES")
	row("files", number(len(r.Files)), digits(total))
	if c := r.Census; c != nil {
		row("shards", number(c.Shards), "")
		row("tensors", number(c.Tensors), digits(c.Bytes))
		for _, n := range c.Roles {
			row("  "+n.Name, number(n.Tensors), digits(n.Bytes))
		}
		for _, n := range c.Types {
			row("  "+n.Name, number(n.Tensors), digits(n.Bytes))
		}
	}
	if r.Tokens > 0 {
		row("token ids", number(r.Tokens), "")
	}
	if r.EngramClasses > 0 {
		row("Engram ids", number(r.EngramClasses), "")
	}
	if r.BytesRead > 0 {
		row("read", "", digits(r.BytesRead))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	var b strings.Builder
	confirmed := 0
	for _, f := range r.Files {
		if f.SHA256 != "" {
			fmt.Fprintf(&b, "%s  %s\n", f.SHA256, f.Name)
		}
		if f.Confirmed {
			confirmed++
		}
	}
	if r.DigestSource != "" {
		fmt.Fprintf(&b, "%d digests equal %s\n", confirmed, r.DigestSource)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	for _, f := range r.Faults {
		fmt.Fprintf(&b, "fault: %s\n", f)
	}
	switch {
	case !r.OK:
	case r.BytesRead > 0:
		b.WriteString("whole: every byte was read\n")
	default:
		b.WriteString("whole, as far as headers tell: --deep reads the weights\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// digits groups a number by thousands.
func digits(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
