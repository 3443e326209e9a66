// SPDX-License-Identifier: Apache-2.0

package hoststack

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/ctlproto"
)

// memory holds the buffers of one call. It is mapped, outside the garbage collector's
// control, so that addresses may be written into it.
type memory struct {
	all []byte
	at  []int // start of each buffer
}

// newMemory arranges the buffers of m, fills them and stores their addresses.
func newMemory(m *ctlproto.Syscall) (*memory, error) {
	mem := &memory{}
	size := 0
	for _, b := range m.Bufs {
		mem.at = append(mem.at, size)
		size += int(b.Len+15) &^ 15
	}
	if size == 0 && len(m.Bufs) == 0 {
		return mem, nil
	}
	all, err := unix.Mmap(-1, 0, size+1, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	mem.all = all
	base := uint64(uintptr(unsafe.Pointer(&all[0])))
	for i, b := range m.Bufs {
		copy(all[mem.at[i]:], b.Data)
	}
	for i, b := range m.Bufs {
		if b.Flags == ctlproto.CTL_BUF_USED {
			continue // outcome reads it
		}
		addr := base + uint64(mem.at[i])
		if b.Flags&ctlproto.CTL_BUF_IN_BUF == 0 {
			m.Args[b.Place] = addr
			continue
		}
		binary.NativeEndian.PutUint64(all[mem.at[b.Place]+int(b.Offset):], addr)
	}
	return mem, nil
}

// outcome returns the content of the buffers that the call could write.
func (mem *memory) outcome(m *ctlproto.Syscall) []byte {
	var out []byte
	for i, b := range m.Bufs {
		if b.Flags&ctlproto.CTL_BUF_OUT == 0 {
			continue
		}
		n := int(b.Len)
		if i+1 < len(m.Bufs) && m.Bufs[i+1].Flags == ctlproto.CTL_BUF_USED {
			used := m.Bufs[i+1]
			n = min(n, int(binary.NativeEndian.Uint32(mem.all[mem.at[used.Place]+int(used.Offset):])))
		}
		out = append(out, mem.all[mem.at[i]:mem.at[i]+n]...)
	}
	return out
}

func (mem *memory) free() {
	if mem.all != nil {
		_ = unix.Munmap(mem.all) // maps all of it
	}
}
