// Package demo embeds the demo model: a small trained checkpoint in the released layout, so that the program writes text
// without any file beside it. README.md says what it is, how well it does and how it was made.
package demo

import (
	"embed"
	"io/fs"
)

// The pattern takes whatever is in the directory, so that the package also builds where the checkpoint is not.
//
//go:embed *
var files embed.FS

// FS is the checkpoint's directory. ok is false in a build without it.
func FS() (fsys fs.FS, ok bool) {
	_, err := fs.Stat(files, "config.json")
	return files, err == nil
}
