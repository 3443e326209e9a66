// SPDX-License-Identifier: Apache-2.0

// Package session implements the protocol between the desk and a device while a
// command runs on the device. It uses one byte stream in each direction and
// consists of frames, with credit for each channel. Through heartbeats, each side
// notices that the other is gone. Both sides always have the same version, because
// the bundle is found by its hash.
package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/lklrun/lklrun/pkg/config"
)

// ErrNoSession reports that the received data is not a session.
var ErrNoSession = errors.New("not a session frame")

// Kind is the kind of a frame.
type Kind byte

// Kinds of frames. A frame consists of its kind, the length of its body (32 bits,
// big-endian), and the body.
const (
	Heartbeat Kind = iota + 1 // no body: the sender is alive
	Data                      // the channel (one byte), then its data
	End                       // the channel: no more data follows, or nothing reads the channel any more
	Credit                    // the channel, and a number of additional bytes that may be sent (32 bits)
	Start                     // to the device: a StartMessage as JSON
	Signal                    // to the device: a signal number, 32 bits
	Size                      // to the device: rows and columns of the terminal, 16 bits each
	_                         // unused
	Exit                      // to the desk: an ExitMessage as JSON, the last frame
	kinds
)

// MaxFrame is the maximum size of a frame's body, in bytes.
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

// ReadFrame reads one frame. buf must have room for its body, at least MaxFrame
// bytes. At the end of the stream, the error is io.EOF. If the stream ends inside a
// frame, the error is io.ErrUnexpectedEOF.
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

// Channel is one of a session's data channels.
type Channel byte

// Channels. The device's end of a command's terminal uses two channels.
// StartMessage lists the standard descriptors that are this terminal.
const (
	Stdin  Channel = iota // to the device
	Stdout                // to the desk
	Stderr                // to the desk
	TTYIn                 // to the device: the terminal's input
	TTYOut                // to the desk: the terminal's output
	nChannels
)

// StartMessage describes the command to run.
type StartMessage struct {
	Args  []string    `json:"args"`           // arguments of lklrun
	Run   *config.Run `json:"run,omitempty"`  // configuration of the run; nil: Args begin with a verb
	Env   []string    `json:"env,omitempty"`  // NAME=VALUE, added to the device's environment
	TTY   bool        `json:"tty,omitempty"`  // the desk has a terminal; at least one of OnTTY is set
	OnTTY [3]bool     `json:"on_tty"`         // the standard descriptors that are the terminal
	None  [3]bool     `json:"none"`           // the standard descriptors that are closed at the desk
	Rows  uint16      `json:"rows,omitempty"` // size of the terminal
	Cols  uint16      `json:"cols,omitempty"`
	Stay  bool        `json:"stay,omitempty"` // the run outlives the session
}

// ExitMessage describes the end of the command.
type ExitMessage struct {
	Status int    `json:"status"`           // exit status if Signal is 0
	Signal int    `json:"signal,omitempty"` // the signal that ended the command
	Error  string `json:"error,omitempty"`  // error of the device's half
}
