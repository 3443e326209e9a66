// SPDX-License-Identifier: Apache-2.0

// Package adbd implements the device's side of adb, for tests: the transport over TCP,
// its streams, the sync and shell services. It follows packages/modules/adb of the
// Android Open Source Project: its protocol.txt, SERVICES.TXT, SYNC.TXT and
// shell_protocol.h define the numbers and how streams end.
package adbd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Commands of a message: four letters in byte order (protocol.txt).
const (
	cmdConnect = 0x4e584e43 // CNXN: version, max payload, banner
	cmdAuth    = 0x48545541 // AUTH: kind, 0, token, signature or key
	cmdOpen    = 0x4e45504f // OPEN: local id, 0, service
	cmdOkay    = 0x59414b4f // OKAY: local id, remote id
	cmdClose   = 0x45534c43 // CLSE: local id, remote id
	cmdWrite   = 0x45545257 // WRTE: local id, remote id, data
)

const (
	version    = 0x01000001 // checksums are ignored since this version
	maxPayload = 1 << 20    // per message, in both directions
	authToken  = 1          // kind of AUTH: the device's challenge
)

// message is a message of the transport. The header has six little-endian words: command,
// two arguments, length, checksum, inverted command.
type message struct {
	cmd, arg0, arg1 uint32
	data            []byte
}

func (m message) String() string {
	var name [4]byte
	binary.LittleEndian.PutUint32(name[:], m.cmd)
	return fmt.Sprintf("%q(%d, %d) %d bytes", name, m.arg0, m.arg1, len(m.data))
}

func readMessage(r io.Reader) (message, error) {
	var head [24]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return message{}, err
	}
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(head[4*i:]) }
	m := message{cmd: word(0), arg0: word(1), arg1: word(2)}
	if word(5) != ^m.cmd {
		return m, fmt.Errorf("message %v: the last word is %#x", m, word(5))
	}
	if word(3) > maxPayload {
		return m, fmt.Errorf("message %v: a payload of %d bytes", m, word(3))
	}
	m.data = make([]byte, word(3))
	_, err := io.ReadFull(r, m.data)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return m, err
}

// bytes encodes the message with its header, and with a checksum for peers that need it.
func (m message) bytes() []byte {
	b := make([]byte, 24, 24+len(m.data))
	sum := uint32(0)
	for _, c := range m.data {
		sum += uint32(c)
	}
	for i, w := range []uint32{m.cmd, m.arg0, m.arg1, uint32(len(m.data)), sum, ^m.cmd} {
		binary.LittleEndian.PutUint32(b[4*i:], w)
	}
	return append(b, m.data...)
}
