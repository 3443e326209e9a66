// SPDX-License-Identifier: Apache-2.0

// Package session is what the desk and a device say to each other over one stream
// of bytes each way while a command runs on the device: frames, with credit for
// each channel, and heartbeats by which each side notices that the other is gone.
// Both sides are of the same version: the bundle is found by its hash.
package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrNoSession says that what comes is something else.
var ErrNoSession = errors.New("this is no frame of a session")

// Kind is what a frame is.
type Kind byte

// Kinds of frames. A frame is its kind, the length of what follows (32 bits, most
// significant byte first), and that.
const (
	Heartbeat Kind = iota + 1 // nothing follows: the sender lives
	Data                      // the channel, a byte; then bytes of it
	End                       // the channel: nothing more comes on it, or nobody reads it any more
	Credit                    // the channel, 32 bits: so many more bytes may be sent on it
	Start                     // to the device: a StartMessage as JSON
	Signal                    // to the device: a signal's number, 32 bits
	Size                      // to the device: rows and columns of the terminal, 16 bits each
	_                         // not in use
	Exit                      // to the desk: an ExitMessage as JSON, the last frame
	kinds
)

// MaxFrame is the most that follows the head of a frame, in bytes.
const MaxFrame = 64 << 10

const headSize = 5

// Frame is one frame.
type Frame struct {
	Kind Kind
	Body []byte
}

// AppendFrame appends a frame to b.
func AppendFrame(b []byte, f Frame) []byte {
	b = append(b, byte(f.Kind))
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.Body)))
	return append(b, f.Body...)
}

// ReadFrame reads one frame; buf is room for its body, at least MaxFrame bytes. The
// error at the end of the stream is io.EOF, and io.ErrUnexpectedEOF within a frame.
func ReadFrame(r io.Reader, buf []byte) (Frame, error) {
	var head [headSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Frame{}, err
	}
	f := Frame{Kind: Kind(head[0])}
	n := binary.BigEndian.Uint32(head[1:])
	if f.Kind == 0 || f.Kind >= kinds || n > MaxFrame {
		return f, fmt.Errorf("%w (kind %d, %d bytes)", ErrNoSession, f.Kind, n)
	}
	f.Body = buf[:n]
	if _, err := io.ReadFull(r, f.Body); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return f, err
	}
	return f, nil
}

// Channel is one of a session's ways for bytes.
type Channel byte

// Channels. A command that has a terminal has the device's end of it by two
// channels; which of its standard descriptors are that terminal says StartMessage.
const (
	Stdin  Channel = iota // to the device
	Stdout                // to the desk
	Stderr                // to the desk
	TTYIn                 // to the device: what is typed
	TTYOut                // to the desk: what the terminal shows
	nChannels
)

// StartMessage says what shall run.
type StartMessage struct {
	Args   []string `json:"args"`             // of lklrun
	Config string   `json:"config,omitempty"` // a configuration file's text, for --config
	Verb   bool     `json:"verb,omitempty"`   // Args begin with a verb, which has no configuration
	Env    []string `json:"env,omitempty"`    // NAME=VALUE, beside the device's own
	TTY    bool     `json:"tty,omitempty"`    // there is a terminal, which one of OnTTY is at least
	OnTTY  [3]bool  `json:"on_tty"`           // which standard descriptors are it
	None   [3]bool  `json:"none"`             // which are closed at the desk
	Rows   uint16   `json:"rows,omitempty"`   // of the terminal
	Cols   uint16   `json:"cols,omitempty"`
	Stay   bool     `json:"stay,omitempty"` // the run outlives the session
}

// ExitMessage says how the command ended.
type ExitMessage struct {
	Status int    `json:"status"`           // exit status, when Signal is 0
	Signal int    `json:"signal,omitempty"` // that ended it
	Error  string `json:"error,omitempty"`  // the device's side failed: why
}
