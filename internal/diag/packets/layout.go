// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"encoding/binary"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// layout holds the field offsets of struct mmsghdr and of its struct msghdr
// (recvmmsg(2)), for the word size of the stack.
type layout struct {
	word      int // size of an address and of a size_t
	timestamp int // value of Conn.Timestamp

	size                                                     int // size of a struct mmsghdr
	nameAt, nameLen, iov, iovLen, control, controlLen, count int
	cmsg                                                     int // size of a struct cmsghdr
}

func layoutOf(conn *stackconn.Conn) layout { return layoutFor(conn.WordSize(), conn.Timestamp()) }

func layoutFor(w, timestamp int) layout {
	return layout{
		word: w, timestamp: timestamp,
		nameLen: w, iov: 2 * w, iovLen: 3 * w, control: 4 * w, controlLen: 5 * w, // msg_flags follows
		count: 7 * w, size: 8 * w, cmsg: w + 8,
	}
}

// put writes a size_t.
func (l layout) put(b []byte, n int) {
	if l.word == 4 {
		binary.LittleEndian.PutUint32(b, uint32(n))
		return
	}
	binary.LittleEndian.PutUint64(b, uint64(n))
}

// get reads a size_t, limited to most.
func (l layout) get(b []byte, most int) int {
	n := uint64(binary.LittleEndian.Uint32(b))
	if l.word == 8 {
		n = binary.LittleEndian.Uint64(b)
	}
	return int(min(n, uint64(most)))
}
