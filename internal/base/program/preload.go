// SPDX-License-Identifier: Apache-2.0

package program

import (
	"debug/elf"
	"fmt"
	"path/filepath"
	"strings"
)

// versionAndroid10 is the version of the symbols that Android 10 added to bionic.
const versionAndroid10 = "LIBC_Q"

// Libraries that the engine preload loads into the program, in the directory of lklhost.
// Bundles for devices have both.
const (
	PreloadLibrary       = "liblklpreload.so"
	PreloadLibraryBionic = "liblklpreload-bionic.so"
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
	case p.bionic():
		if err := p.checkBionic(); err != nil {
			return err
		}
	case !knownLoader(filepath.Base(p.Loader)):
		return fmt.Errorf("%s uses the loader %s, whose C library is not supported", p.Path, p.Loader)
	}
	if p.isGo() {
		return fmt.Errorf("%s is a Go program, which makes system calls without the C library", p.Path)
	}
	return nil
}

// isGo reports whether the program has the section that each linker of Go writes. The package
// debug/buildinfo would also read executables of other systems.
func (p *Program) isGo() bool {
	f, err := elf.Open(p.Path)
	if err != nil {
		return false
	}
	defer f.Close()
	return f.Section(".go.buildinfo") != nil
}

// knownLoader reports whether csrc/engine/preload can catch the system calls of the
// loader's C library, if that is not bionic. It supports the GNU C library
// (ld-linux-x86-64.so.2, ld-linux-aarch64.so.1). On arm64 it also supports musl
// (ld-musl-aarch64.so.1), because one method works there for the code of every compiler.
func knownLoader(name string) bool {
	return strings.HasPrefix(name, "ld-linux") || name == "ld-musl-aarch64.so.1"
}

// PreloadLibrary returns the name of the library for the program's C library. As for
// CheckPreload, an interpreter counts instead of its script.
func (p *Program) PreloadLibrary() string {
	for p.Interpreter != nil {
		p = p.Interpreter
	}
	if p.bionic() {
		return PreloadLibraryBionic
	}
	return PreloadLibrary
}

// bionic reports whether the program uses bionic, the C library of Android. The loader is
// /system/bin/linker64, or the file that this link names since Android 10,
// /apex/com.android.runtime/bin/linker64.
func (p *Program) bionic() bool { return filepath.Base(p.Loader) == "linker64" }

// checkBionic returns an error if the bionic of this system has no thread-local variables
// for loaded libraries. It has them since Android 10.
func (p *Program) checkBionic() error {
	var path string
	var f *elf.File
	var err error
	for _, dir := range []string{"lib64/bionic", "lib64"} {
		path = filepath.Join(filepath.Dir(filepath.Dir(p.Loader)), dir, "libc.so")
		if f, err = elf.Open(path); err == nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("the C library of %s cannot be examined: %w", p.Path, err)
	}
	defer f.Close()
	versions, err := f.DynamicVersions()
	if err != nil {
		return fmt.Errorf("the C library of %s cannot be examined: %s: %w", p.Path, path, err)
	}
	for _, v := range versions {
		if v.Name == versionAndroid10 {
			return nil
		}
	}
	return fmt.Errorf("%s uses the C library of Android 9 or earlier (%s), which supports no thread-local variables in libraries; Android 10 or later is required", p.Path, path)
}
