// SPDX-License-Identifier: Apache-2.0

package stackconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/stack/ctlproto"
)

// Ask sends a question to lklrun through its stack host and returns the answer. If file
// is not nil, it is sent along. The wait ends with ctx. An error number
// comes from the stack host (ctl_proto.h, CTL_ASK) or from lklrun.
func (c *Conn) Ask(ctx context.Context, text []byte, file *os.File) ([]byte, error) {
	m := ctlproto.Ask{Text: text}
	if file == nil {
		return c.exchange(ctx, ctlproto.CTL_ASK, m.Append(nil))
	}
	m.Flags = ctlproto.CTL_ASKF_FD
	return c.exchange(ctx, ctlproto.CTL_ASK, m.Append(nil), file)
}

// Question is a question to lklrun on its own connection. Each one must be answered.
type Question struct {
	Serial uint32
	Text   []byte
	File   *os.File // the receiver closes it; nil if none came
	End    bool     // from the stack host itself: the target has ended
}

// Questions returns the channel of questions; it is closed when the connection ends.
func (c *Conn) Questions() <-chan Question { return c.asked }

// Answer answers a question, with 0 or a negative error number.
func (c *Conn) Answer(ctx context.Context, serial uint32, status int32, text []byte) error {
	m := ctlproto.Answer{Serial: serial, Status: status, Text: text}
	if _, err := c.request(ctx, ctlproto.CTL_ANSWER, m.Append(nil)); err != nil {
		return fmt.Errorf("answering a request: %w", err)
	}
	return nil
}

// question handles a CTL_ASKED frame.
func (c *Conn) question(f ctlproto.Frame) error {
	var m ctlproto.Ask
	if err := m.Unmarshal(f.Body); err != nil {
		return err
	}
	q := Question{Serial: m.Serial, Text: m.Text, End: m.Flags&ctlproto.CTL_ASKF_END != 0}
	if m.Flags&ctlproto.CTL_ASKF_FD != 0 {
		if q.File = c.inbox.file(); q.File == nil {
			return fmt.Errorf("%w: a request without its descriptor", ctlproto.ErrMalformed)
		}
	}
	select {
	case c.asked <- q:
		return nil
	default:
		if q.File != nil {
			q.File.Close()
		}
		return fmt.Errorf("%w: more than %d requests at once", ctlproto.ErrMalformed, cap(c.asked))
	}
}

// inbox reads a connection and keeps the descriptors that arrive with its bytes.
type inbox struct {
	sock  *net.UnixConn
	files []*os.File
	oob   [64]byte
}

// Read reads from the socket.
func (i *inbox) Read(p []byte) (int, error) {
	n, oobn, _, _, err := i.sock.ReadMsgUnix(p, i.oob[:])
	if errors.Is(err, io.EOF) {
		err = io.EOF // bare, as net.Conn's Read returns it
	}
	if oobn == 0 {
		return n, err
	}
	msgs, perr := unix.ParseSocketControlMessage(i.oob[:oobn])
	if perr != nil {
		return n, perr
	}
	for _, m := range msgs {
		fds, rerr := unix.ParseUnixRights(&m)
		if rerr != nil {
			continue // not descriptors
		}
		for _, fd := range fds {
			i.files = append(i.files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	return n, err
}

// file takes the oldest descriptor that has arrived; nil if there is none.
func (i *inbox) file() *os.File {
	if len(i.files) == 0 {
		return nil
	}
	f := i.files[0]
	i.files = i.files[1:]
	return f
}

// close closes the descriptors that were not taken.
func (i *inbox) close() {
	for f := i.file(); f != nil; f = i.file() {
		f.Close()
	}
}
