// SPDX-License-Identifier: Apache-2.0

package program

import (
	"debug/buildinfo"
	"fmt"
	"path/filepath"
	"strings"
)

// CheckPreload returns an error if the preload library cannot be loaded into the program,
// or could not catch its system calls. It checks the file that is finally executed, such
// as a script's interpreter.
func (p *Program) CheckPreload() error {
	switch {
	case p.Privileged():
		return fmt.Errorf("%s gains privileges when it is executed, so it cannot load the library", p.Path)
	case p.Interpreter != nil:
		return p.Interpreter.CheckPreload()
	case p.Format == FormatHidden:
		return fmt.Errorf("%s is not readable, so lklrun cannot examine it", p.Path)
	case p.Linkage != "dynamic":
		return fmt.Errorf("%s is a static program, so it cannot load the library", p.Path)
	case !knownLoader(filepath.Base(p.Loader)):
		return fmt.Errorf("%s uses the loader %s, whose C library is not supported", p.Path, p.Loader)
	}
	if _, err := buildinfo.ReadFile(p.Path); err == nil {
		return fmt.Errorf("%s is a Go program, which makes system calls without the C library", p.Path)
	}
	return nil
}

// knownLoader reports whether csrc/engine/preload can catch the system calls of the
// loader's C library. It supports the GNU C library (ld-linux-x86-64.so.2,
// ld-linux-aarch64.so.1). On arm64 it also supports musl (ld-musl-aarch64.so.1), because
// one method works there for the code of every compiler.
func knownLoader(name string) bool {
	return strings.HasPrefix(name, "ld-linux") || name == "ld-musl-aarch64.so.1"
}
