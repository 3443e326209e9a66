// SPDX-License-Identifier: Apache-2.0

// Package ctlproto implements the wire format of the control socket: frames, and the body
// of every message, as csrc/shared/ctl_proto.h describes them. Only ReadFrame performs
// I/O; internal/stack/stackconn is a client based on it.
//
// Everything is little-endian. A body has exactly the length that its message implies. A
// body that is too short or too long is rejected, because either means that the two sides
// of the stream are out of sync.
package ctlproto

//go:generate go run ./gen -in ../../../csrc/shared/ctl_proto.h -out proto_gen.go

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrMalformed is wrapped by every decoding error of this package.
var ErrMalformed = errors.New("malformed control message")

var le = binary.LittleEndian

// Header is struct ctl_hdr.
type Header struct {
	Len    uint32 // of the frame, including the header
	Type   uint16
	Flags  uint16
	ID     uint32
	Status int32 // replies only: 0 or a negative errno
}

// Frame is one message as sent: the header without its length, and the body.
type Frame struct {
	Type   uint16
	ID     uint32
	Status int32
	Body   []byte
}

// IsReply says whether the frame answers a request.
func (f Frame) IsReply() bool { return f.Type&CTL_REPLY != 0 }

// Append appends the frame in wire format to b.
func (f Frame) Append(b []byte) ([]byte, error) {
	n := CTL_HDR_SIZE + len(f.Body)
	if n > CTL_FRAME_MAX {
		return nil, fmt.Errorf("%w: frame of %d bytes, at most %d can be sent", ErrMalformed, n, CTL_FRAME_MAX)
	}
	b = le.AppendUint32(b, uint32(n))
	b = le.AppendUint16(b, f.Type)
	b = le.AppendUint16(b, 0)
	b = le.AppendUint32(b, f.ID)
	b = le.AppendUint32(b, uint32(f.Status))
	return append(b, f.Body...), nil
}

// ParseHeader decodes the first CTL_HDR_SIZE bytes of a frame and checks the length in
// the header.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < CTL_HDR_SIZE {
		return Header{}, short("header", len(b), CTL_HDR_SIZE)
	}
	h := Header{
		Len:    le.Uint32(b),
		Type:   le.Uint16(b[4:]),
		Flags:  le.Uint16(b[6:]),
		ID:     le.Uint32(b[8:]),
		Status: int32(le.Uint32(b[12:])),
	}
	if h.Len < CTL_HDR_SIZE || h.Len > CTL_FRAME_MAX {
		return Header{}, fmt.Errorf("%w: frame length %d is outside %d..%d", ErrMalformed, h.Len, CTL_HDR_SIZE, CTL_FRAME_MAX)
	}
	return h, nil
}

// ReadFrame reads one frame. It returns io.EOF only between frames, and
// io.ErrUnexpectedEOF inside a frame.
func ReadFrame(r io.Reader) (Frame, error) {
	var head [CTL_HDR_SIZE]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Frame{}, err
	}
	h, err := ParseHeader(head[:])
	if err != nil {
		return Frame{}, err
	}
	f := Frame{Type: h.Type, ID: h.ID, Status: h.Status}
	if n := h.Len - CTL_HDR_SIZE; n > 0 {
		f.Body = make([]byte, n)
		if _, err := io.ReadFull(r, f.Body); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return Frame{}, err
		}
	}
	return f, nil
}

func short(what string, have, want int) error {
	return fmt.Errorf("%w: %s of %d bytes, want %d", ErrMalformed, what, have, want)
}

// exact checks the length of a message with a fixed length.
func exact(what string, b []byte, want int) error {
	if len(b) != want {
		return short(what, len(b), want)
	}
	return nil
}
