// SPDX-License-Identifier: Apache-2.0

package program

import (
	"debug/elf"
	"testing"
)

// The expected messages are those of amd64.
func TestForeign(t *testing.T) {
	if handler(binfmtMisc, header(elf.ELFCLASS32, elf.EM_386, elf.ET_EXEC)) != "" {
		t.Fatal("this machine has a handler for i386 programs; take it out of binfmt_misc")
	}
	p := wants(t, file(t, 0o755, header(elf.ELFCLASS32, elf.EM_386, elf.ET_EXEC)), 126, "a 32-bit program for i386", "only 64-bit programs for x86-64")
	if p.Bits != 32 || p.Machine != "i386" || p.Linkage != "static" {
		t.Errorf("%+v", p)
	}
	// An x32 program has this machine's instructions but uses other system
	// calls.
	wants(t, file(t, 0o755, header(elf.ELFCLASS32, elf.EM_X86_64, elf.ET_DYN)), 126, "a 32-bit program for x86-64")
	wants(t, file(t, 0o755, header(elf.ELFCLASS64, elf.EM_SPARCV9, elf.ET_EXEC)), 126, "for sparcv9")
	wants(t, file(t, 0o755, header(elf.ELFCLASS64, elf.EM_X86_64, elf.ET_REL)), 126, "not an executable")
	wants(t, file(t, 0o755, header(elf.ELFCLASS64, elf.EM_X86_64, elf.ET_EXEC)[:60]), 126, "damaged")
	wants(t, file(t, 0o755, header(elf.ELFCLASS64, elf.EM_X86_64, elf.ET_EXEC)), 0)
}
