// SPDX-License-Identifier: Apache-2.0

package program

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine returns the machine that this program was built for. lklrun can run only
// programs for the same machine. Machine returns false if the machine's name is unknown.
func Machine() (elf.Machine, bool) {
	m, known := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "arm": elf.EM_ARM}[runtime.GOARCH]
	return m, known
}

// name returns the usual name of a machine.
func name(m elf.Machine) string {
	switch m {
	case elf.EM_386:
		return "i386"
	case elf.EM_X86_64:
		return "x86-64"
	case elf.EM_AARCH64:
		return "arm64"
	}
	return strings.ToLower(strings.TrimPrefix(m.String(), "EM_"))
}

// readELF reads an ELF file's header (elf(5)), and returns an error if the file cannot be
// executed under lklrun. It reads only the parts that the kernel reads, because many
// programs have damaged sections.
func (p *Program) readELF(r io.ReaderAt) error {
	var head [64]byte // size of Elf64_Ehdr; Elf32_Ehdr has 52 bytes
	n, _ := r.ReadAt(head[:], 0)
	var order binary.ByteOrder = binary.LittleEndian
	if elf.Data(head[elf.EI_DATA]) == elf.ELFDATA2MSB {
		order = binary.BigEndian
	}
	typ := elf.Type(order.Uint16(head[16:]))
	machine := elf.Machine(order.Uint16(head[18:]))
	p.Machine = name(machine)
	switch class := elf.Class(head[elf.EI_CLASS]); {
	case class == elf.ELFCLASS32 && n >= 52:
		p.Bits = 32
		p.Loader = loader(r, order, int64(order.Uint32(head[28:])), order.Uint16(head[42:]), order.Uint16(head[44:]))
	case class == elf.ELFCLASS64 && n == 64:
		p.Bits = 64
		p.Loader = loader(r, order, int64(order.Uint64(head[32:])), order.Uint16(head[54:]), order.Uint16(head[56:]))
	default:
		return errors.New("damaged ELF file")
	}
	p.Linkage = "static"
	if p.Loader != "" {
		p.Linkage = "dynamic"
	}
	want, known := Machine()
	switch {
	case typ != elf.ET_EXEC && typ != elf.ET_DYN:
		return fmt.Errorf("an ELF file, but not an executable (%v)", typ)
	case known && (machine != want || p.Bits != strconv.IntSize):
		return fmt.Errorf("a %d-bit program for %s; lklrun runs only %d-bit programs for %s, because system call numbers differ",
			p.Bits, p.Machine, strconv.IntSize, name(want))
	case p.Loader != "":
		if _, err := os.Stat(p.Loader); err != nil {
			return &Error{p.Path, statusOf(err), fmt.Errorf("its loader %s does not exist", p.Loader)}
		}
	}
	return nil
}

// loader reads the name of the dynamic loader from the n program headers at offset at. It
// returns "" if they name no loader.
func loader(r io.ReaderAt, order binary.ByteOrder, at int64, size, n uint16) string {
	for i := range n {
		var h [56]byte // size of Elf64_Phdr; Elf32_Phdr has 32 bytes
		if size != 32 && size != 56 {
			return ""
		}
		if _, err := r.ReadAt(h[:size], at+int64(i)*int64(size)); err != nil {
			return ""
		}
		if elf.ProgType(order.Uint32(h[:])) != elf.PT_INTERP {
			continue
		}
		off, length := int64(order.Uint32(h[4:])), uint64(order.Uint32(h[16:]))
		if size == 56 {
			off, length = int64(order.Uint64(h[8:])), order.Uint64(h[32:])
		}
		name := make([]byte, min(length, unix.PathMax))
		if _, err := r.ReadAt(name, off); err != nil {
			return ""
		}
		return strings.TrimRight(string(name), "\x00")
	}
	return ""
}
