// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/lklrun/lklrun/internal/stack/ctlproto"
)

// Noise makes random data for a control socket.
type Noise struct{ *rand.Rand }

// Bytes returns n random bytes, half of them zero.
func (b Noise) Bytes(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		if b.IntN(2) == 0 {
			p[i] = byte(b.Uint32())
		}
	}
	return p
}

// Frame returns a frame with the header that its body requires.
func (b Noise) Frame(typ uint16, body []byte) []byte {
	p := binary.LittleEndian.AppendUint32(nil, uint32(ctlproto.CTL_HDR_SIZE+len(body)))
	p = binary.LittleEndian.AppendUint16(p, typ)
	p = binary.LittleEndian.AppendUint16(p, 0)
	p = binary.LittleEndian.AppendUint32(p, b.Uint32N(8)) // small, so that ids repeat
	p = binary.LittleEndian.AppendUint32(p, 0)
	return append(p, body...)
}
